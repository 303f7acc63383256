#include "cache/kv_pool.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>

#include "cache/req_to_token_pool.h"

namespace gapless {

// What a bug would lose: reachable, so that a leak checker does not object, and never returned.
KvLease* lost_lease = nullptr;
ReqSlot* lost_slot = nullptr;

namespace {

TEST(KvAllocator, EveryPageIsInOneStateAndTheStatesAddUp) {
  KvAllocator pool(8);
  KvLease lease(pool);
  ASSERT_TRUE(pool.extend(lease, 5));
  EXPECT_EQ(pool.count(PageState::kPrivate), 5);
  EXPECT_EQ(pool.free_pages(), 3);
  for (int32_t page : lease.pages()) EXPECT_NE(page, 0);  // page 0 is dump

  KvLease front = lease.take_front(2);
  std::vector<int32_t> tree = pool.give_to_tree(std::move(front));
  lease.hold();
  EXPECT_EQ(pool.count(PageState::kTree), 2);
  EXPECT_EQ(pool.count(PageState::kLeased), 3);
  EXPECT_EQ(pool.check_integrity(), "");

  lease.release();
  pool.free_tree_pages(tree);
  EXPECT_EQ(pool.free_pages(), 8);
  EXPECT_EQ(pool.check_integrity(), "");
}

TEST(KvAllocator, ExtendIsAllOrNothing) {
  KvAllocator pool(4);
  KvLease a(pool), b(pool);
  ASSERT_TRUE(pool.extend(a, 3));
  EXPECT_FALSE(pool.extend(b, 2));
  EXPECT_EQ(b.size(), 0);
  EXPECT_EQ(pool.free_pages(), 1);
  EXPECT_TRUE(pool.extend(b, 1));
}

TEST(KvAllocator, AMovedLeaseGivesItsPagesBackOnce) {
  std::vector<int32_t> freed;
  KvAllocator pool(4, [&](int32_t page) { freed.push_back(page); });
  {
    KvLease a(pool);
    ASSERT_TRUE(pool.extend(a, 2));
    KvLease b = std::move(a);
    KvLease c(pool);
    c = std::move(b);
    EXPECT_EQ(c.size(), 2);
    EXPECT_TRUE(freed.empty());
  }
  EXPECT_EQ(freed.size(), 2u);
  EXPECT_EQ(pool.free_pages(), 4);
}

TEST(KvAllocatorDeathTest, FreeingWhatTheTreeDoesNotOwnIsCaught) {
  KvAllocator pool(4);
  KvLease lease(pool);
  ASSERT_TRUE(pool.extend(lease, 1));
  std::vector<int32_t> tree = pool.give_to_tree(std::move(lease));
  pool.free_tree_pages(tree);
  EXPECT_DEATH(pool.free_tree_pages(tree), "is free, not tree");
}

TEST(KvAllocator, RebuildFreesWhatNobodyOwns) {
  KvAllocator pool(6);
  KvLease kept(pool);
  ASSERT_TRUE(pool.extend(kept, 2));
  std::vector<PageState> owned(7, PageState::kFree);
  for (int32_t page : kept.pages()) owned[page] = PageState::kPrivate;
  {
    KvLease lost(pool);
    ASSERT_TRUE(pool.extend(lost, 3));
    lost_lease = new KvLease(std::move(lost));
  }
  EXPECT_EQ(pool.free_pages(), 1);
  EXPECT_EQ(pool.rebuild(owned), 3);
  EXPECT_EQ(pool.free_pages(), 4);
  EXPECT_EQ(pool.check_integrity(), "");
  kept.release();
  EXPECT_EQ(pool.free_pages(), 6);
}

TEST(ReqToTokenPool, SlotsGoBackOnceAndSlotZeroIsNeverHandedOut) {
  ReqToTokenPool pool(5, 3);
  std::vector<ReqSlot> slots;
  std::set<int32_t> ids;
  for (int i = 0; i < 4; i++) {
    slots.push_back(pool.allocate());
    ids.insert(slots.back().id());
  }
  EXPECT_EQ(ids, (std::set<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(pool.free_slots(), 0);
  ReqSlot moved = std::move(slots[0]);
  slots.clear();
  EXPECT_EQ(pool.used_slots(), 1);
  moved.release();
  moved.release();
  EXPECT_EQ(pool.used_slots(), 0);
}

TEST(ReqToTokenPool, RowsGrowAndStartEmpty) {
  ReqToTokenPool pool(2, 3);
  ReqSlot slot = pool.allocate();
  EXPECT_EQ(pool.append_page(slot, 7), 0);
  EXPECT_EQ(pool.append_page(slot, 9), 1);
  EXPECT_EQ(std::vector<int32_t>(pool.row(slot.id()).begin(), pool.row(slot.id()).end()),
            (std::vector<int32_t>{7, 9}));
  slot.release();
  slot = pool.allocate();
  EXPECT_TRUE(pool.row(slot.id()).empty());
}

TEST(ReqToTokenPool, RebuildFreesSlotsNobodyOwns) {
  ReqToTokenPool pool(5, 1);
  ReqSlot kept = pool.allocate();
  lost_slot = new ReqSlot(pool.allocate());
  EXPECT_EQ(pool.rebuild({kept.id()}), 1);
  EXPECT_EQ(pool.used_slots(), 1);
  kept.release();
  EXPECT_EQ(pool.free_slots(), 4);
}

}  // namespace
}  // namespace gapless
