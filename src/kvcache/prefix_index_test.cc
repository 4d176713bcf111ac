#include "kvcache/prefix_index.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <string>

namespace deepinfer {
namespace {

constexpr int32_t kPage = 4;

std::vector<PageKey> keys_of(const PageKey& root, std::span<const TokenId> tokens, std::span<const ImageSpan> images = {}) {
  std::vector<PageKey> keys;
  extend_page_keys(root, tokens, images, kPage, keys);
  return keys;
}

// An index with what it stands on.
struct World {
  explicit World(int32_t pages, int32_t snapshots = 2) : pool(pages), shelf(16, snapshots, pages), index(pool, shelf, kPage) {}

  // Publishes all complete pages of `tokens` and lets them go; false when there is no room.
  bool store(const std::vector<TokenId>& tokens) {
    const auto keys = keys_of(root, tokens);
    index.match(root, keys, tokens, found);
    PageLease lease = pool.share(found.pages);
    const uint32_t prompt = index.begin(found.pages, keys.size());
    const auto fresh = static_cast<int64_t>(keys.size() - found.pages.size());
    if (!index.make_room(fresh)) return false;
    lease.append(*pool.lease(fresh));
    for (size_t i = found.pages.size(); i < keys.size(); ++i) {
      const int32_t parent = i == 0 ? -1 : lease.pages()[i - 1];
      EXPECT_EQ(index.publish(root, keys, i, tokens, parent, lease.pages()[i], prompt), lease.pages()[i]);
    }
    return true;
  }
  size_t matched(const std::vector<TokenId>& tokens) {
    index.match(root, keys_of(root, tokens), tokens, found);
    return found.pages.size();
  }

  PagePool pool;
  SnapshotShelf shelf;
  PrefixIndex index;
  PageKey root = root_key("model", false, "tenant");
  PrefixMatch found;
};

TEST(PageKeys, DependOnEverythingBefore) {
  const PageKey root = root_key("model", false, "a");
  EXPECT_NE(root, root_key("model", true, "a"));
  EXPECT_NE(root, root_key("model", false, "b"));
  EXPECT_NE(root_key("ab", false, "c"), root_key("a", false, "bc"));
  const std::vector<TokenId> tokens{1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<TokenId> other = tokens;
  other[1] = 7;
  const auto keys = keys_of(root, tokens);
  ASSERT_EQ(keys.size(), 2u);  // the last token's page is not complete
  EXPECT_NE(keys_of(root, other)[1], keys[1]);
  std::vector<PageKey> grown(keys.begin(), keys.begin() + 1);
  extend_page_keys(root, tokens, {}, kPage, grown);
  EXPECT_EQ(grown, keys);
}

TEST(PageKeys, AreTheSameWhetherPicturesAreLookedForOrNot) {
  const PageKey root = root_key("model", false, "");
  const std::vector<ImageSpan> far{{.begin = 5000, .rows = 2, .content_hash = "cat"}};
  for (const int32_t page : {4, 64, 256, 300}) {
    const std::vector<TokenId> tokens(900, page);
    std::vector<PageKey> plain, looked;
    extend_page_keys(root, tokens, {}, page, plain);
    extend_page_keys(root, tokens, far, page, looked);
    EXPECT_EQ(plain, looked) << page;
  }
}

TEST(PageKeys, ImagesCountWhereTheyLie) {
  const PageKey root = root_key("model", false, "");
  const std::vector<TokenId> tokens(12, 5);
  std::vector<ImageSpan> images{{.begin = 5, .rows = 2, .content_hash = "cat"}};
  const auto cat = keys_of(root, tokens, images), plain = keys_of(root, tokens);
  EXPECT_EQ(cat[0], plain[0]);
  EXPECT_NE(cat[1], plain[1]);
  images[0].content_hash = "dog";
  EXPECT_NE(keys_of(root, tokens, images)[1], cat[1]);
  images[0].content_hash.clear();
  EXPECT_EQ(keys_of(root, tokens, images).size(), 1u);
}

TEST(PrefixIndex, MatchesWhatWasPublishedAndSaysWhyItEnds) {
  World world(8);
  ASSERT_TRUE(world.store({1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(world.matched({1, 2, 3, 4, 5, 6, 7, 8}), 2u);
  EXPECT_EQ(world.found.verdict.reason, MissReason::kNone);
  EXPECT_EQ(world.matched({1, 2, 3, 4, 5, 6, 0, 8, 9}), 1u);
  EXPECT_EQ(world.found.verdict.reason, MissReason::kChanged);
  EXPECT_EQ(world.found.verdict.first_different, 6);
  EXPECT_EQ(world.matched({1, 9, 3, 4}), 0u);
  EXPECT_EQ(world.found.verdict.reason, MissReason::kChanged);
  EXPECT_EQ(world.found.verdict.first_different, 1);
  EXPECT_EQ(world.matched({1, 2, 3}), 0u);
  EXPECT_EQ(world.found.verdict.reason, MissReason::kShort);
  EXPECT_EQ(world.matched({1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 1, 1}), 2u);
  EXPECT_EQ(world.found.verdict.reason, MissReason::kNew);
}

std::vector<TokenId> list(const TokenWindow& window) { return {window.span().begin(), window.span().end()}; }

TEST(PrefixIndex, ShowsBothSidesOfADifference) {
  World world(8);
  ASSERT_TRUE(world.store({1, 2, 3, 4, 5, 6, 7, 8}));
  ASSERT_TRUE(world.store({1, 2, 3, 4, 9, 9, 9, 9}));
  // The continuation that agrees longest is the one compared with.
  EXPECT_EQ(world.matched({1, 2, 3, 4, 5, 6, 0, 8, 9, 10}), 1u);
  const PrefixVerdict& verdict = world.found.verdict;
  EXPECT_EQ(verdict.cached_tokens, 4);
  EXPECT_EQ(list(verdict.before), (std::vector<TokenId>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(list(verdict.here), (std::vector<TokenId>{0, 8, 9, 10}));
  EXPECT_EQ(list(verdict.there), (std::vector<TokenId>{7, 8}));
}

// Under LRU both would be gone.
TEST(PrefixIndex, WhatWasUsedAgainStaysLongerThanWhatCameLater) {
  World world(40);
  const std::vector<TokenId> used{1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9};
  ASSERT_TRUE(world.store(used));
  ASSERT_TRUE(world.store(used));
  const auto once = [](TokenId first) { return std::vector<TokenId>{first, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}; };
  for (TokenId first = 100; first < 120; ++first) ASSERT_TRUE(world.store(once(first)));
  EXPECT_EQ(world.matched(used), 2u) << "its end goes first, what the next turn changes";
  EXPECT_EQ(world.matched(once(100)), 0u);
  EXPECT_EQ(world.found.verdict.reason, MissReason::kEvicted);
  EXPECT_EQ(world.matched(once(119)), 3u);
}

// Though both of the others have been idle for longer.
TEST(PrefixIndex, WhatAConversationLeftGoesBeforeWhatIsIdle) {
  World world(20);
  const auto pages = [](TokenId from, TokenId count) {
    std::vector<TokenId> tokens;
    for (TokenId i = 0; i < count * kPage; ++i) tokens.push_back(from + i / kPage);
    return tokens;
  };
  std::vector<TokenId> idle = pages(100, 4), before = pages(200, 8), after = pages(200, 5);
  ASSERT_TRUE(world.store(idle));
  ASSERT_TRUE(world.store(before));
  for (const TokenId token : pages(300, 4)) after.push_back(token);
  ASSERT_TRUE(world.store(after));
  ASSERT_TRUE(world.index.make_room(8));  // four go: the very end of the idle one, and what was left
  EXPECT_EQ(world.matched(idle), 3u);
  EXPECT_EQ(world.matched(before), 5u);
  EXPECT_EQ(world.matched(after), 9u);
}

TEST(PrefixIndex, AnUnsoundPageGoesWithAllThatContinuesIt) {
  World world(8);
  ASSERT_TRUE(world.store({1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9}));
  ASSERT_TRUE(world.store({1, 2, 3, 4, 5, 6, 7, 8, 7, 7, 7, 7}));
  EXPECT_EQ(world.matched({1, 2, 3, 4, 5, 6, 7, 8, 7, 7, 7, 7}), 3u);
  const int32_t second = world.found.pages[1];
  world.index.forget(second);
  EXPECT_EQ(world.matched({1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9}), 1u);
  EXPECT_EQ(world.pool.num_cached(), 1);
  world.index.forget(second);
  EXPECT_TRUE(world.pool.balanced());
}

// The reason is for the operator; what a tenant may see does not depend on others.
TEST(PrefixIndex, AnotherTenantsPagesAreNamedOnlyToTheOperator) {
  World world(4);
  ASSERT_TRUE(world.store({1, 2, 3, 4, 5, 6, 7, 8}));
  world.root = root_key("model", false, "stranger");
  EXPECT_EQ(world.matched({1, 2, 3, 4, 5, 6, 7, 8}), 0u);
  EXPECT_EQ(operator_reason(world.found.verdict), MissReason::kOtherTenant);
  EXPECT_EQ(world.found.verdict.reason, MissReason::kNew);
  EXPECT_EQ(world.found.verdict.there.count, 0);
  EXPECT_EQ(world.found.verdict.first_different, -1);
  EXPECT_EQ(world.matched({1, 2, 3, 5}), 0u);
  EXPECT_EQ(world.found.verdict.reason, MissReason::kNew);
  // Their pages make room: nothing is left to tell.
  ASSERT_TRUE(world.store({9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9}));
  EXPECT_EQ(world.matched({1, 2, 3, 4, 5, 6, 7, 8}), 0u);
  EXPECT_EQ(world.found.verdict.reason, MissReason::kChanged);
}

TEST(PrefixIndex, TheSameTokensWithAnotherPictureSaySo) {
  World world(4);
  const std::vector<TokenId> tokens{1, 2, 3, 4};
  const std::vector<ImageSpan> cat{{.begin = 1, .rows = 2, .content_hash = "cat"}},
      dog{{.begin = 1, .rows = 2, .content_hash = "dog"}};
  PageLease lease = *world.pool.lease(1);
  world.index.publish(world.root, keys_of(world.root, tokens, cat), 0, tokens, -1, lease.pages()[0]);
  world.index.match(world.root, keys_of(world.root, tokens, dog), tokens, world.found);
  EXPECT_EQ(world.found.verdict.reason, MissReason::kOtherImage);
}

TEST(PrefixIndex, EvictsTheEndOfTheOldestChainFirst) {
  World world(4);
  ASSERT_TRUE(world.store({1, 1, 1, 1, 2, 2, 2, 2}));
  ASSERT_TRUE(world.store({3, 3, 3, 3, 4, 4, 4, 4}));
  EXPECT_EQ(world.pool.num_cached(), 4);
  ASSERT_TRUE(world.store({5, 5, 5, 5}));
  EXPECT_EQ(world.matched({1, 1, 1, 1, 2, 2, 2, 2}), 1u);
  EXPECT_EQ(world.found.verdict.reason, MissReason::kEvicted);
  EXPECT_EQ(world.matched({3, 3, 3, 3, 4, 4, 4, 4}), 2u);
}

TEST(PrefixIndex, TheSamePageTwiceIsKeptOnce) {
  World world(4);
  const std::vector<TokenId> tokens{1, 2, 3, 4};
  const auto keys = keys_of(world.root, tokens);
  PageLease first = *world.pool.lease(1), second = *world.pool.lease(1);
  EXPECT_EQ(world.index.publish(world.root, keys, 0, tokens, -1, first.pages()[0]), first.pages()[0]);
  const int32_t used = world.index.publish(world.root, keys, 0, tokens, -1, second.pages()[0]);
  EXPECT_EQ(used, first.pages()[0]);
  second.replace(0, used);
  EXPECT_EQ(world.pool.num_leased(), 1);
  EXPECT_EQ(world.pool.num_free(), 3);
}

TEST(PrefixIndex, ASnapshotGoesWithItsPage) {
  World world(2);
  ASSERT_TRUE(world.store({1, 1, 1, 1}));
  ASSERT_EQ(world.matched({1, 1, 1, 1}), 1u);
  const int32_t id = world.shelf.take();
  world.shelf.attach(id, world.found.pages[0]);
  EXPECT_EQ(world.shelf.num_attached(), 1);
  ASSERT_TRUE(world.store({2, 2, 2, 2, 3, 3, 3, 3}));
  EXPECT_EQ(world.shelf.num_attached(), 0);
  // One that nobody used for its life goes; used ones begin another.
  constexpr int64_t kLife = SnapshotShelf::kLifeUs;
  SnapshotShelf aging(16, 2, 4);
  const int32_t old = aging.take(), used = aging.take();
  aging.attach(old, 0);
  aging.attach(used, 1);
  aging.advance(kLife / 2);
  aging.touch(used);
  aging.advance(kLife);
  EXPECT_EQ(aging.of_page(0), SnapshotShelf::kNone);
  EXPECT_EQ(aging.of_page(1), used);
  aging.advance(kLife * 3 / 2);
  EXPECT_EQ(aging.num_attached(), 0);
  EXPECT_NE(aging.data(aging.take()), nullptr) << "memory that went comes back";
  // A full shelf forgets the oldest; a buffer that is being filled is never taken away.
  const int32_t a = world.shelf.take(), b = world.shelf.take();
  EXPECT_NE(a, b);
  EXPECT_EQ(world.shelf.take(), SnapshotShelf::kNone);
}

// Against a plain set of prefixes: whatever is stored, shared and evicted, a match is a prefix that was stored, pages add up,
// and as long as nothing was evicted the match is the longest.
TEST(PrefixIndex, AnyHistoryMatchesOnlyWhatWasStored) {
  EXPECT_TRUE(rc::check("index = set of prefixes", [](const std::vector<std::vector<uint8_t>>& texts) {
    World world(6);
    std::map<std::vector<TokenId>, bool> stored;
    for (const auto& text : texts) {
      std::vector<TokenId> tokens;
      for (const uint8_t letter : text) tokens.push_back(letter % 2);
      size_t longest = 0;
      for (size_t n = kPage; n <= tokens.size(); n += kPage) {
        if (!stored.contains({tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n)})) break;
        longest = n / kPage;
      }
      const size_t got = world.matched(tokens);
      RC_ASSERT(got <= longest);
      if (world.index.num_evicted() == 0) RC_ASSERT(got == longest);
      if (world.store(tokens)) {
        RC_ASSERT(world.matched(tokens) == tokens.size() / kPage);
        for (size_t n = kPage; n <= tokens.size(); n += kPage) {
          stored[{tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n)}] = true;
        }
      }
      RC_ASSERT(world.pool.balanced());
      RC_ASSERT(world.pool.num_leased() == 0);
    }
  }));
}

}  // namespace
}  // namespace deepinfer
