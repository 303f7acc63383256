import assert from "node:assert/strict";
import { test } from "node:test";
import { ageText, bytesText, countText, percentText, plural, rateText, timeText } from "../../src/server/web/format.js";

const plain = (text) => text.replaceAll("\u202f", " ");

test("times have three digits and a unit that fits", () => {
  const texts = [0, 0.004, 3.14159, 42.42, 999, 1234, 12345, 123456, 2e6].map((us) => plain(timeText(us)));
  assert.deepEqual(texts, ["0", "0.00 µs", "3.14 µs", "42.4 µs", "999 µs", "1.23 ms", "12.3 ms", "123 ms", "2.00 s"]);
});

test("counts are grouped", () => {
  assert.equal(plain(countText(1234567)), "1 234 567");
  assert.equal(countText(12), "12");
  assert.equal(plain(plural(1, "row")), "1 row");
  assert.equal(plain(plural(2000, "row")), "2 000 rows");
});

test("a share is 100 % or 0 % only when it is", () => {
  assert.equal(plain(percentText(1)), "100 %");
  assert.equal(plain(percentText(0.99999)), "99.9 %");
  assert.equal(plain(percentText(0)), "0 %");
  assert.equal(plain(percentText(0.00001)), "0.1 %");
  assert.equal(plain(percentText(0.5)), "50.0 %");
});

test("rates, ages and sizes", () => {
  assert.equal(rateText(3.14), "3.1");
  assert.equal(plain(rateText(12345.6)), "12 346");
  assert.equal(plain(ageText(4.25)), "4.3 s");
  assert.equal(plain(ageText(200)), "3 min 20 s");
  assert.equal(plain(ageText(7300)), "2 h 1 min");
  assert.equal(plain(bytesText(3 * 1024 ** 2)), "3.0 MiB");
});
