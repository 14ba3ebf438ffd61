// Every cell of the QP state table, by type: which transitions exist, what each must be given, what
// it may be given, and that nothing else passes. Written from IBTA vol. 1, 11.2.5.2.
#include "dataplane/transport/state_table.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace rocemu::transport {
namespace {

constexpr std::uint32_t kAllBits =
    kQpState | kQpCurState | kQpEnSqdAsyncNotify | kQpAccessFlags | kQpPkeyIndex | kQpPort |
    kQpQkey | kQpAv | kQpPathMtu | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpRqPsn |
    kQpMaxQpRdAtomic | kQpAltPath | kQpMinRnrTimer | kQpSqPsn | kQpMaxDestRdAtomic |
    kQpPathMigState | kQpCap | kQpDestQpn | kQpRateLimit;

struct Rule {
  std::uint32_t required = 0;
  std::uint32_t optional = 0;
};

// Attributes in words; lower case is optional.
std::uint32_t bit_of(const std::string& word) {
  static const std::map<std::string, std::uint32_t> kBits = {
      {"cur", kQpCurState},
      {"notify", kQpEnSqdAsyncNotify},
      {"access", kQpAccessFlags},
      {"pkey", kQpPkeyIndex},
      {"port", kQpPort},
      {"qkey", kQpQkey},
      {"av", kQpAv},
      {"mtu", kQpPathMtu},
      {"timeout", kQpTimeout},
      {"retry", kQpRetryCnt},
      {"rnr", kQpRnrRetry},
      {"rqpsn", kQpRqPsn},
      {"rd", kQpMaxQpRdAtomic},
      {"alt", kQpAltPath},
      {"minrnr", kQpMinRnrTimer},
      {"sqpsn", kQpSqPsn},
      {"destrd", kQpMaxDestRdAtomic},
      {"mig", kQpPathMigState},
      {"dest", kQpDestQpn},
      {"rate", kQpRateLimit},
  };
  return kBits.at(word);
}

std::uint32_t bits_of(const std::string& words) {
  std::uint32_t bits = 0;
  std::string word;
  for (const char c : words + ' ') {
    if (c != ' ') {
      word += c;
    } else if (!word.empty()) {
      bits |= bit_of(word);
      word.clear();
    }
  }
  return bits;
}

using Key = std::tuple<QpType, QpState, QpState>;

std::map<Key, Rule> make_rules() {
  using enum QpType;
  using enum QpState;
  std::map<Key, Rule> rules;
  const auto add = [&](QpType type, QpState from, QpState to, const char* required,
                       const char* optional) {
    rules[{type, from, to}] = {bits_of(required), bits_of(optional)};
  };
  add(kUd, kReset, kInit, "pkey port qkey", "");
  add(kUc, kReset, kInit, "pkey port access", "");
  add(kRc, kReset, kInit, "pkey port access", "");
  add(kUd, kInit, kInit, "", "pkey port qkey");
  add(kUc, kInit, kInit, "", "pkey port access");
  add(kRc, kInit, kInit, "", "pkey port access");
  add(kUd, kInit, kRtr, "", "pkey qkey");
  add(kUc, kInit, kRtr, "av mtu dest rqpsn", "alt access pkey");
  add(kRc, kInit, kRtr, "av mtu dest rqpsn destrd minrnr", "alt access pkey");
  add(kUd, kRtr, kRts, "sqpsn", "cur qkey rate");
  add(kUc, kRtr, kRts, "sqpsn", "cur alt access mig rate");
  add(kRc, kRtr, kRts, "sqpsn timeout retry rnr rd", "cur alt access minrnr mig rate");
  add(kUd, kRts, kRts, "", "cur qkey rate");
  add(kUc, kRts, kRts, "", "cur access alt mig rate");
  add(kRc, kRts, kRts, "", "cur access alt mig minrnr rate");
  for (const QpType type : {kUd, kUc, kRc}) add(type, kRts, kSqd, "", "notify");
  add(kUd, kSqd, kRts, "", "cur qkey");
  add(kUc, kSqd, kRts, "", "cur alt access mig");
  add(kRc, kSqd, kRts, "", "cur alt access minrnr mig");
  add(kUd, kSqd, kSqd, "", "pkey qkey");
  add(kUc, kSqd, kSqd, "", "av alt access pkey mig");
  add(kRc, kSqd, kSqd, "", "port av timeout retry rnr rd destrd alt access pkey minrnr mig");
  add(kUd, kSqe, kRts, "", "cur qkey");
  add(kUc, kSqe, kRts, "", "cur access");
  for (const QpType type : {kUd, kUc, kRc}) {
    for (int from = 0; from <= static_cast<int>(kErr); ++from) {
      add(type, static_cast<QpState>(from), kReset, "", "");
      add(type, static_cast<QpState>(from), kErr, "", "");
    }
  }
  return rules;
}

TEST(StateTable, EveryCellOfEveryType) {
  const auto rules = make_rules();
  for (const QpType type : {QpType::kRc, QpType::kUc, QpType::kUd}) {
    for (int f = 0; f <= 6; ++f) {
      for (int t = 0; t <= 6; ++t) {
        const auto from = static_cast<QpState>(f);
        const auto to = static_cast<QpState>(t);
        SCOPED_TRACE(testing::Message()
                     << "type " << static_cast<int>(type) << ", " << f << " to " << t);
        const auto rule = rules.find({type, from, to});
        const auto found = find_transition(type, from, to);
        ASSERT_EQ(found.has_value(), rule != rules.end());
        if (!found) {
          EXPECT_FALSE(is_modify_legal(type, from, to, kQpState));
          EXPECT_FALSE(is_modify_legal(type, from, to, kAllBits));
          continue;
        }
        const std::uint32_t required = rule->second.required;
        const std::uint32_t optional = rule->second.optional;
        EXPECT_EQ(found->required, required);
        EXPECT_EQ(found->optional, optional);
        EXPECT_TRUE(is_modify_legal(type, from, to, kQpState | required));
        EXPECT_TRUE(is_modify_legal(type, from, to, kQpState | required | optional));
        for (std::uint32_t bit = 1; bit != 0 && bit <= kAllBits; bit <<= 1) {
          if (bit == kQpState || (kAllBits & bit) == 0) continue;
          if ((required & bit) != 0) {
            EXPECT_FALSE(is_modify_legal(type, from, to, kQpState | (required & ~bit)));
          } else {
            EXPECT_EQ(is_modify_legal(type, from, to, kQpState | required | bit),
                      (optional & bit) != 0);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace rocemu::transport
