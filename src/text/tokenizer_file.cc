#include "text/tokenizer_file.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_cursor.h"
#include "base/utf8.h"
#include "text/byte_alphabet.h"
#include "text/pretokenizer.h"

namespace deepinfer {
namespace {

constexpr size_t kPrefetchAhead = 12;  // searches; 8 to 16 measured alike

Status expect_value(const Json& parent, std::string_view key, const Json& wanted, std::string_view where) {
  const Json& value = parent.at(key);
  if (value.is_null() || value == wanted) return {};
  return unsupported(fmt::format("{}: \"{}\" is {}, only {} is supported", where, key, value.dump(), wanted.dump()));
}

Status expect_type(const Json& value, std::string_view type, std::string_view where) {
  if (!value.is_object()) return corrupt(fmt::format("{} must be an object, got {}", where, value.kind_name()));
  const Json* actual = value.find("type");
  if (!actual || !actual->is_string()) return corrupt(fmt::format("{} has no \"type\"", where));
  if (actual->as_string() == type) return {};
  return unsupported(fmt::format("{} is of type {}, only {} is supported", where, actual->as_string(), type));
}

// A pattern as the reference list spells it: line breaks may stand in the file as themselves or as escapes.
std::string canonical_pattern(std::string_view pattern) {
  std::string out;
  for (const char c : pattern) {
    if (c == '\r')
      out += "\\r";
    else if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

Status check_split(const Json& split, std::string_view pattern, std::string_view where) {
  DI_CHECK_OK(expect_type(split, "Split", where));
  const Json& regex = split.at("pattern").at("Regex");
  if (!regex.is_string()) return corrupt(fmt::format("{} has no regular expression under pattern.Regex", where));
  if (canonical_pattern(regex.as_string()) != pattern) {
    return unsupported(fmt::format("unsupported pre-tokenizer: {} has the pattern {}; known is V4.1's {}", where, regex.dump(),
                                   Json(pattern).dump()));
  }
  DI_CHECK_OK(expect_value(split, "behavior", "Isolated", where));
  return expect_value(split, "invert", false, where);
}

Status check_pretokenizer(const Json& value) {
  DI_CHECK_OK(expect_type(value, "Sequence", "pre_tokenizer"));
  const Json& steps = value.at("pretokenizers");
  constexpr std::string_view kSplits[] = {kNumberSplit, kHanSplit, kWordSplit};
  if (!steps.is_array() || steps.size() != std::size(kSplits) + 1) {
    return unsupported("unsupported pre-tokenizer: V4.1's has three Split steps and a ByteLevel step");
  }
  for (size_t i = 0; i < std::size(kSplits); ++i) {
    DI_CHECK_OK(check_split(steps[i], kSplits[i], fmt::format("pre_tokenizer.pretokenizers[{}]", i)));
  }
  const std::string where = fmt::format("pre_tokenizer.pretokenizers[{}]", std::size(kSplits));
  DI_CHECK_OK(expect_type(steps[std::size(kSplits)], "ByteLevel", where));
  DI_CHECK_OK(expect_value(steps[std::size(kSplits)], "add_prefix_space", false, where));
  const Json& use_regex = steps[std::size(kSplits)].at("use_regex");
  if (use_regex.is_bool() && !use_regex.as_bool()) return {};
  return unsupported(fmt::format("{}: \"use_regex\" must be false", where));
}

Status check_normalizer(const Json& value) {
  if (value.is_null()) return {};
  DI_CHECK_OK(expect_type(value, "Sequence", "normalizer"));
  const Json& steps = value.at("normalizers");
  if (steps.is_array() && steps.size() == 0) return {};
  return unsupported("normalizer: only none or an empty Sequence is supported");
}

// Everything beside the model and the added tokens.
Status check_part(std::string_view key, const Json& value) {
  if (key == "pre_tokenizer") return check_pretokenizer(value);
  if (key == "normalizer") return check_normalizer(value);
  if (key == "decoder") return expect_type(value, "ByteLevel", "decoder");
  if (key == "post_processor") return value.is_null() ? Status() : expect_type(value, "ByteLevel", "post_processor");
  if ((key == "truncation" || key == "padding") && !value.is_null()) return unsupported(fmt::format("{} must be null", key));
  return {};
}

Status check_model_option(std::string_view key, const Json& value) {
  if (key == "type" && value != Json("BPE"))
    return unsupported(fmt::format("model.type is {}, only \"BPE\" is supported", value.dump()));
  const bool text_option = key == "continuing_subword_prefix" || key == "end_of_word_suffix";
  const bool off = value.is_null() || value == Json(false) || (text_option && value == Json(""));
  if ((text_option || key == "dropout" || key == "byte_fallback") && !off) {
    return unsupported(fmt::format("model.{} is {}, only null is supported", key, value.dump()));
  }
  return {};
}

Result<bool> read_flag(const Json& token, std::string_view key, const std::string& where) {
  const Json* value = token.find(key);
  if (!value) return false;
  return value->to_bool(where + "." + std::string(key));
}

Result<AddedToken> read_added_token(const Json& token, const std::string& where) {
  if (!token.is_object()) return corrupt(fmt::format("{} must be an object, got {}", where, token.kind_name()));
  AddedToken added;
  DI_TRY(const int64_t id, token.at("id").to_int64(where + ".id"));
  if (id < 0 || id > INT32_MAX) return corrupt(fmt::format("{}.id is {}", where, id));
  added.id = static_cast<TokenId>(id);
  DI_TRY(added.text, token.at("content").to_string(where + ".content"));
  if (added.text.empty()) return corrupt(fmt::format("{}.content is empty", where));
  DI_TRY(added.special, read_flag(token, "special", where));
  DI_TRY(added.normalized, read_flag(token, "normalized", where));
  for (const char* key : {"single_word", "lstrip", "rstrip"}) {
    DI_TRY(const bool set, read_flag(token, key, where));
    if (set) return unsupported(fmt::format("{}.{} is true, only false is supported", where, key));
  }
  return added;
}

// One pass over the text. The model is read as it streams by; the small parts are taken as Json.
class Reader {
 public:
  // The release's file takes 49 characters a token, 5 a byte of one: enough to grow no table twice.
  explicit Reader(std::string_view json) : in_(json), max_ids_(static_cast<int64_t>(json.size() / 4)) {
    file_.bytes.reserve(json.size() / 40, json.size() / 5);
    merge_bytes_.reserve(json.size() / 5);
    merge_texts_.reserve(json.size() / 40);
  }

  Result<TokenizerFile> read() {
    std::string key;
    for (in_.open_object(); ok() && in_.next_member(key);) read_top(key);
    if (ok()) in_.finish();
    if (in_.failed()) return in_.error();
    if (!ok()) return std::move(*error_);
    DI_CHECK_OK(finish());
    return std::move(file_);
  }

 private:
  bool ok() const { return !in_.failed() && !error_; }
  void fail(Error error) {
    if (!error_) error_ = std::move(error);
  }

  void read_top(const std::string& key) {
    if (key == "model") return read_model();
    std::string_view raw;
    if (!in_.skip_value(raw)) return;
    auto value = Json::parse(raw);
    if (!value) return fail(corrupt(key + ": " + value.error().message));
    has_pretokenizer_ |= key == "pre_tokenizer";
    has_decoder_ |= key == "decoder";
    auto status = key == "added_tokens" ? read_added(*value) : check_part(key, *value);
    if (!status) fail(status.error());
  }

  Status read_added(const Json& list) {
    if (!list.is_array()) return corrupt(fmt::format("added_tokens must be an array, got {}", list.kind_name()));
    for (size_t i = 0; i < list.size(); ++i) {
      DI_TRY(AddedToken token, read_added_token(list[i], fmt::format("added_tokens[{}]", i)));
      file_.added.push_back(std::move(token));
    }
    return {};
  }

  void read_model() {
    std::string key;
    std::string_view late_merges;  // merges that stand before the vocabulary
    for (in_.open_object(); ok() && in_.next_member(key);) {
      if (key == "vocab") {
        read_vocab();
      } else if (key == "merges" && has_vocab_) {
        read_merges(in_);
      } else if (key == "merges") {
        in_.skip_value(late_merges);
      } else {
        read_model_option(key);
      }
    }
    if (!ok() || late_merges.empty() || !has_vocab_) return;
    JsonCursor merges(late_merges);
    read_merges(merges);
    if (merges.failed()) fail(corrupt("model.merges: " + merges.error().message));
  }

  void read_model_option(const std::string& key) {
    std::string_view raw;
    if (!in_.skip_value(raw)) return;
    auto value = Json::parse(raw);
    if (!value) return fail(corrupt("model." + key + ": " + value.error().message));
    if (key == "ignore_merges") file_.ignore_merges = *value == Json(true);
    if (auto status = check_model_option(key, *value); !status) fail(status.error());
  }

  void read_vocab() {
    if (has_vocab_) return fail(corrupt("model.vocab appears twice"));
    has_vocab_ = true;
    std::string_view text;
    std::string storage, bytes;
    int64_t id = 0;
    for (in_.open_object(); in_.next_raw_member(text, storage);) {
      if (!in_.read_int64(id)) return;
      if (id < 0 || id >= max_ids_) return fail_token(text, fmt::format("has the id {}, out of range", id));
      bytes.clear();
      const bool byte_level = append_spelled_bytes(bytes, text);
      if (!byte_level && !is_valid_utf8(text)) return void(in_.fail("string is not valid UTF-8"));
      if (!add_token(static_cast<TokenId>(id), text, byte_level ? bytes : text, byte_level)) return;
    }
    if (!in_.failed()) index_vocab();
  }

  void fail_token(std::string_view text, std::string_view why) {
    fail(corrupt(fmt::format("model.vocab: token {} {}", Json(to_valid_utf8(text)).dump(), why)));
  }

  bool add_token(TokenId id, std::string_view text, std::string_view bytes, bool byte_level) {
    if (bytes.empty()) return fail_token(text, "is empty"), false;
    if (file_.bytes.has(id)) return fail_token(text, fmt::format("has the id {} of another token", id)), false;
    file_.bytes.add(id, bytes);
    if (file_.byte_level.size() < file_.bytes.size()) file_.byte_level.resize(file_.bytes.size());
    file_.byte_level[static_cast<size_t>(id)] = byte_level;
    return true;
  }

  void index_vocab() {
    const size_t size = file_.bytes.size();
    file_.index.reserve(size);
    for (size_t i = 0; i < size; ++i) {
      const size_t ahead = i + kPrefetchAhead;
      if (ahead < size && file_.byte_level[ahead]) file_.index.prefetch(file_.bytes[static_cast<TokenId>(ahead)]);
      const auto id = static_cast<TokenId>(i);
      if (!file_.byte_level[i] || file_.index.add(file_.bytes, id)) continue;
      return fail(corrupt(fmt::format("model.vocab: token {} appears twice", Json(spell_bytes(file_.bytes[id])).dump())));
    }
  }

  void read_merges(JsonCursor& in) {
    if (has_merges_) return fail(corrupt("model.merges appears twice"));
    has_merges_ = true;
    std::string_view left, right;
    std::string storage, right_storage;
    for (in.open_array(); in.next_item();) {
      if (in.peek() == '[') {
        in.open_array();
        const bool two = in.next_item() && in.read_raw_string(left, storage) && in.next_item() &&
                         in.read_raw_string(right, right_storage) && !in.next_item();
        if (!two) return void(in.fail("a merge must have two parts"));
        if (in.failed()) return;
      } else {
        if (!in.read_raw_string(left, storage)) return;
        const size_t space = left.find(' ');
        if (space == std::string_view::npos) return void(in.fail("a merge must be two tokens with a space between"));
        right = left.substr(space + 1);
        left = left.substr(0, space);
      }
      note_merge(left, right);
    }
    if (!in.failed()) resolve_merges();
  }

  struct MergeText {
    uint32_t begin, border, end;  // of both parts in merge_bytes_; border == begin or end when one is not spelled right
  };

  void note_merge(std::string_view left, std::string_view right) {
    MergeText text;
    text.begin = static_cast<uint32_t>(merge_bytes_.size());
    append_spelled_bytes(merge_bytes_, left);
    text.border = static_cast<uint32_t>(merge_bytes_.size());
    append_spelled_bytes(merge_bytes_, right);
    text.end = static_cast<uint32_t>(merge_bytes_.size());
    merge_texts_.push_back(text);
  }

  std::string_view merge_part(uint32_t begin, uint32_t end) const {
    return std::string_view(merge_bytes_).substr(begin, end - begin);
  }

  void resolve_merges() {
    file_.merges.reserve(merge_texts_.size());
    for (size_t i = 0; i < merge_texts_.size(); ++i) {
      if (i + kPrefetchAhead < merge_texts_.size()) {
        const MergeText& ahead = merge_texts_[i + kPrefetchAhead];
        file_.index.prefetch(merge_part(ahead.begin, ahead.border));
        file_.index.prefetch(merge_part(ahead.border, ahead.end));
      }
      const MergeText& text = merge_texts_[i];
      BpeMerge merge;
      merge.left = file_.index.find(file_.bytes, merge_part(text.begin, text.border));
      merge.right = file_.index.find(file_.bytes, merge_part(text.border, text.end));
      merge.product = find_product(merge_part(text.begin, text.end));
      if (merge.left < 0 || merge.right < 0 || merge.product < 0) return fail_merge(i, merge);
      file_.merges.push_back(merge);
    }
  }

  void fail_merge(size_t number, const BpeMerge& merge) {
    const MergeText& text = merge_texts_[number];
    const std::string_view unknown = merge.left < 0    ? merge_part(text.begin, text.border)
                                     : merge.right < 0 ? merge_part(text.border, text.end)
                                                       : merge_part(text.begin, text.end);
    if (unknown.empty())
      return fail(
          corrupt(fmt::format("model.merges[{}] has an empty part, or one with characters outside the byte alphabet", number)));
    fail(corrupt(fmt::format("model.merges[{}] needs the token {}, which is not in the vocabulary", number,
                             Json(spell_bytes(unknown)).dump())));
  }

  // Ids mostly follow the merges: the one after the last product is right nearly always and saves a search.
  TokenId find_product(std::string_view bytes) const {
    const TokenId guess = file_.merges.empty() ? -1 : file_.merges.back().product + 1;
    if (file_.bytes.has(guess) && file_.byte_level[static_cast<size_t>(guess)] && file_.bytes[guess] == bytes) return guess;
    return file_.index.find(file_.bytes, bytes);
  }

  Status finish() {
    if (!has_vocab_) return corrupt("model.vocab is missing");
    if (!has_merges_) return corrupt("model.merges is missing");
    if (!has_pretokenizer_) return corrupt("pre_tokenizer is missing");
    if (!has_decoder_) return corrupt("decoder is missing");
    std::sort(file_.added.begin(), file_.added.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    for (const AddedToken& token : file_.added) DI_CHECK_OK(join_added(token));
    file_.byte_level.resize(file_.bytes.size());
    for (size_t id = 0; id < file_.bytes.size(); ++id) {
      if (!file_.bytes.has(static_cast<TokenId>(id)))
        return corrupt(fmt::format("no token has the id {}; ids must be 0 to {} without gaps", id, file_.bytes.size() - 1));
    }
    return {};
  }

  Status join_added(const AddedToken& token) {
    if (token.id >= max_ids_)
      return corrupt(fmt::format("added token {} has the id {}, out of range", Json(token.text).dump(), token.id));
    std::string bytes;
    const bool spelled = append_spelled_bytes(bytes, token.text);
    if (!spelled) bytes = token.text;
    if (file_.bytes.has(token.id)) {
      if (file_.bytes[token.id] == bytes) return {};
      return corrupt(fmt::format("added token {} has the id {} of another token", Json(token.text).dump(), token.id));
    }
    if (spelled && file_.index.find(file_.bytes, bytes) >= 0) {
      return corrupt(fmt::format("added token {} is in the vocabulary under another id", Json(token.text).dump()));
    }
    file_.bytes.add(token.id, bytes);
    return {};
  }

  JsonCursor in_;
  int64_t max_ids_;  // every token takes at least four characters of JSON, so a larger id means a gap
  TokenizerFile file_;
  std::optional<Error> error_;
  std::string merge_bytes_;
  HugeVector<MergeText> merge_texts_;
  bool has_vocab_ = false, has_merges_ = false, has_pretokenizer_ = false, has_decoder_ = false;
};

}  // namespace

Result<TokenizerFile> read_tokenizer_file(std::string_view json) {
  if (json.size() > (size_t{1} << 30)) return too_large("a tokenizer.json above 1 GiB");
  return Reader(json).read();
}

}  // namespace deepinfer
