#include "cache/radix_cache.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

namespace gapless {
namespace {

using Ids = std::vector<int32_t>;

Ids iota(int32_t n, int32_t first = 0) {
  Ids ids(n);
  for (int32_t i = 0; i < n; i++) ids[i] = first + i;
  return ids;
}

class RadixCacheTest : public ::testing::Test {
 protected:
  void SetUp() override { make(4, 64); }
  void make(int32_t page_size, int32_t pages) {
    cache.reset();
    pool = std::make_unique<KvAllocator>(pages);
    cache = std::make_unique<RadixCache>(*pool, page_size);
    page = page_size;
  }
  // A request that computes `ids` and ends: what is cached afterwards.
  void put(const Ids& ids, std::string_view ns = "") {
    Ids pages;
    CacheHandle handle = cache->match_prefix(ns, ids, pages);
    KvLease tail(*pool);
    ASSERT_TRUE(pool->extend(tail, int32_t(ids.size() + page - 1) / page - handle.n_pages()));
    cache->insert_finished(handle, ids, tail);
    tail.release();
    handle.release();
    check();
  }
  int32_t length(const Ids& ids, std::string_view ns = "") { return cache->find(ns, ids).length; }
  void check() {
    EXPECT_EQ(cache->check_integrity(), "");
    EXPECT_EQ(pool->check_integrity(), "");
  }
  std::unique_ptr<KvAllocator> pool;
  std::unique_ptr<RadixCache> cache;
  int32_t page = 0;
};

TEST_F(RadixCacheTest, OnlyWholePagesEnter) {
  put(iota(10));
  EXPECT_EQ(length(iota(10)), 8);
  EXPECT_EQ(length(iota(7)), 4);
  EXPECT_EQ(length(iota(3)), 0);
  EXPECT_EQ(cache->total_pages(), 2);
  EXPECT_EQ(pool->free_pages(), 62);
}

TEST_F(RadixCacheTest, SplitsBetweenPagesAndKeepsBothBranches) {
  put(iota(16));
  Ids other = iota(8);
  for (int32_t id : iota(8, 100)) other.push_back(id);
  put(other);
  EXPECT_EQ(length(iota(16)), 16);
  EXPECT_EQ(length(other), 16);
  EXPECT_EQ(cache->total_pages(), 6);  // 2 shared, 2 + 2 behind
  Ids inside = iota(16);
  inside[6] = 77;  // differs inside the second page: only the first is shared
  EXPECT_EQ(length(inside), 4);
}

TEST_F(RadixCacheTest, NamespacesShareNothing) {
  put(iota(8), "a");
  EXPECT_EQ(length(iota(8), "a"), 8);
  EXPECT_EQ(length(iota(8), "b"), 0);
  EXPECT_EQ(length(iota(8)), 0);
}

TEST_F(RadixCacheTest, AnEqualPageStaysWithTheRequestThatHasIt) {
  Ids pages;
  CacheHandle a = cache->match_prefix("", iota(8), pages), b = cache->match_prefix("", iota(8), pages);
  EXPECT_TRUE(pages.empty());
  KvLease tail_a(*pool), tail_b(*pool);
  ASSERT_TRUE(pool->extend(tail_a, 2) && pool->extend(tail_b, 2));
  cache->insert_unfinished(a, iota(8), tail_a);
  EXPECT_EQ(a.n_pages(), 2);
  EXPECT_EQ(tail_a.size(), 0);
  cache->insert_unfinished(b, iota(8), tail_b);
  EXPECT_EQ(b.n_pages(), 0);  // and locks nothing it does not use
  EXPECT_EQ(tail_b.size(), 2);
  check();
  a.release();
  EXPECT_EQ(cache->evictable_pages(), 2);
  // Its end adds what the tree lacks, behind the equal pages.
  ASSERT_TRUE(pool->extend(tail_b, 1));
  cache->insert_finished(b, iota(12), tail_b);
  EXPECT_EQ(tail_b.size(), 2);
  EXPECT_EQ(cache->total_pages(), 3);
  EXPECT_EQ(cache->evictable_pages(), 0);
  check();
  b.release();
  EXPECT_EQ(cache->evictable_pages(), 3);
}

TEST_F(RadixCacheTest, LockedPagesAreNeverEvicted) {
  put(iota(16));
  put(iota(8, 200));
  Ids pages;
  CacheHandle handle = cache->match_prefix("", iota(10), pages);
  EXPECT_EQ(handle.n_pages(), 2);
  EXPECT_EQ(pages.size(), 2u);
  EXPECT_EQ(cache->evictable_pages(), 4);
  EXPECT_EQ(cache->evict(100), 4);
  check();
  EXPECT_EQ(length(iota(16)), 8);
  handle.release();
  EXPECT_EQ(cache->evict(100), 2);
  EXPECT_EQ(pool->free_pages(), 64);
}

TEST_F(RadixCacheTest, T34EvictsExactlyWhatIsAskedLeastRecentlyUsedFirst) {
  put(iota(12));
  put(iota(12, 100));
  put(iota(12, 200));
  Ids pages;
  cache->match_prefix("", iota(12), pages).release();  // now 100.. is the oldest
  EXPECT_EQ(cache->evict(2), 2);
  EXPECT_EQ(length(iota(12)), 12);
  EXPECT_EQ(length(iota(12, 100)), 4);  // from its end
  EXPECT_EQ(length(iota(12, 200)), 12);
  EXPECT_EQ(cache->evict(2), 2);
  EXPECT_EQ(length(iota(12, 100)), 0);
  EXPECT_EQ(length(iota(12, 200)), 8);
  check();
}

TEST_F(RadixCacheTest, FlushDropsEverythingAndCountsIt) {
  put(iota(12));
  put(iota(12), "other");
  EXPECT_EQ(cache->flush(), 6);
  EXPECT_EQ(cache->total_pages(), 0);
  EXPECT_EQ(length(iota(12)), 0);
  check();
}

TEST_F(RadixCacheTest, ALockSurvivesASplitBelowIt) {
  Ids pages;
  put(iota(16));
  CacheHandle whole = cache->match_prefix("", iota(16), pages);
  Ids other = iota(8);
  other.push_back(500);
  CacheHandle half = cache->match_prefix("", other, pages);  // splits the locked node
  EXPECT_EQ(half.n_pages(), 2);
  check();
  EXPECT_EQ(cache->evictable_pages(), 0);
  half.release();
  EXPECT_EQ(cache->evictable_pages(), 0);
  check();
  whole.release();
  EXPECT_EQ(cache->evictable_pages(), 4);
  check();
}

// Against a plain model: the set of all cached page prefixes. T33: handles stay right whatever happens to the
// tree between.
TEST_F(RadixCacheTest, RandomOperationsMatchAPlainModel) {
  for (uint32_t seed = 1; seed <= 300; seed++) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 rng(seed);
    auto below = [&](int32_t n) { return int32_t(rng() % n); };
    make(std::array{1, 2, 4}[below(3)], 24 + below(40));
    std::map<std::pair<std::string, Ids>, int32_t> model;  // whole prefix -> page id
    struct Live {
      std::string ns;
      Ids ids, row;
      CacheHandle handle;
      KvLease tail;
    };
    std::vector<Live> live;
    auto record = [&](const Live& l) {
      for (size_t n = page; n <= l.ids.size(); n += page) {
        const int32_t p = l.row[n / page - 1];
        if (pool->state(p) == PageState::kTree)
          model.try_emplace({l.ns, Ids(l.ids.begin(), l.ids.begin() + n)}, p);
      }
    };
    for (int step = 0; step < 150; step++) {
      if (live.size() < 4 && below(2)) {
        Live l{.ns = below(3) ? "" : "x",
               .ids = Ids(1 + below(20)),
               .row = {},
               .handle = {},
               .tail = KvLease(*pool)};
        for (int32_t& id : l.ids) id = below(2);
        l.handle = cache->match_prefix(l.ns, l.ids, l.row);
        Ids expect;
        for (size_t n = page; n <= l.ids.size(); n += page) {
          auto it = model.find({l.ns, Ids(l.ids.begin(), l.ids.begin() + n)});
          if (it == model.end()) break;
          expect.push_back(it->second);
        }
        ASSERT_EQ(l.row, expect);
        ASSERT_EQ(l.handle.n_pages(), int32_t(expect.size()));
        const int32_t need = int32_t(l.ids.size() + page - 1) / page - l.handle.n_pages();
        if (need > pool->free_pages()) cache->evict(need - pool->free_pages());
        if (pool->extend(l.tail, need)) {
          l.row.insert(l.row.end(), l.tail.pages().begin(), l.tail.pages().end());
          live.push_back(std::move(l));
        }
      } else if (!live.empty() && below(2)) {
        Live& l = live[below(int32_t(live.size()))];
        const Ids part(l.ids.begin(), l.ids.begin() + below(int32_t(l.ids.size()) + 1));
        cache->insert_unfinished(l.handle, part, l.tail);
        record(l);
      } else if (!live.empty()) {
        const size_t i = below(int32_t(live.size()));
        Live& l = live[i];
        cache->insert_finished(l.handle, l.ids, l.tail);
        record(l);
        if (below(2)) l.tail.hold();
        live.erase(live.begin() + i);
      } else {
        cache->evict(below(6));
      }
      std::erase_if(model, [&](const auto& e) { return pool->state(e.second) != PageState::kTree; });
      for (Live& l : live) {  // what a row names is never freed under it
        for (int32_t p : l.row) ASSERT_NE(pool->state(p), PageState::kFree);
      }
      ASSERT_EQ(cache->handles(), int64_t(live.size()));
      ASSERT_EQ(cache->total_pages(), int32_t(model.size()));
      ASSERT_EQ(cache->check_integrity(), "");
      ASSERT_EQ(pool->check_integrity(), "");
      for (const auto& [key, p] : model)
        ASSERT_EQ(cache->find(key.first, key.second).length, int32_t(key.second.size()));
    }
    live.clear();
    cache->flush();
    ASSERT_EQ(pool->free_pages(), pool->total());
  }
}

}  // namespace
}  // namespace gapless
