// Of grammar/a_label.h: what Unicode's tables say of code points (RFC 5892).
#include "grammar/a_label_tables.h"

#include <utf8proc.h>

#include <algorithm>
#include <span>

namespace deepinfer {
namespace {

struct Range {
  uint32_t first, last;
};

bool in(std::span<const Range> ranges, uint32_t code) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const Range& range) { return range.first <= code && code <= range.last; });
}

// Joining types of Unicode 16 (ArabicShaping.txt), of letters that labels may hold: those that join what follows, and the
// others that join what is before them.
constexpr Range kJoinsNext[] = {
    {0x620, 0x620},     {0x626, 0x626},     {0x628, 0x628},     {0x62A, 0x62E},     {0x633, 0x63F},     {0x641, 0x647},
    {0x649, 0x64A},     {0x66E, 0x66F},     {0x678, 0x687},     {0x69A, 0x6BF},     {0x6C1, 0x6C2},     {0x6CC, 0x6CC},
    {0x6CE, 0x6CE},     {0x6D0, 0x6D1},     {0x6FA, 0x6FC},     {0x6FF, 0x6FF},     {0x712, 0x714},     {0x71A, 0x71D},
    {0x71F, 0x727},     {0x729, 0x729},     {0x72B, 0x72B},     {0x72D, 0x72E},     {0x74E, 0x758},     {0x75C, 0x76A},
    {0x76D, 0x770},     {0x772, 0x772},     {0x775, 0x777},     {0x77A, 0x77F},     {0x7CA, 0x7EA},     {0x841, 0x845},
    {0x848, 0x848},     {0x84A, 0x853},     {0x855, 0x855},     {0x860, 0x860},     {0x862, 0x865},     {0x868, 0x868},
    {0x886, 0x886},     {0x889, 0x88D},     {0x88F, 0x88F},     {0x8A0, 0x8A9},     {0x8AF, 0x8B0},     {0x8B3, 0x8B8},
    {0x8BA, 0x8C8},     {0x1807, 0x1807},   {0x1820, 0x1878},   {0x1887, 0x18A8},   {0x18AA, 0x18AA},   {0xA840, 0xA872},
    {0x10AC0, 0x10AC4}, {0x10ACD, 0x10ACD}, {0x10AD3, 0x10ADC}, {0x10ADE, 0x10AE0}, {0x10AEB, 0x10AEE}, {0x10B80, 0x10B80},
    {0x10B82, 0x10B82}, {0x10B86, 0x10B88}, {0x10B8A, 0x10B8B}, {0x10B8D, 0x10B8D}, {0x10B90, 0x10B90}, {0x10BAD, 0x10BAE},
    {0x10D00, 0x10D21}, {0x10D23, 0x10D23}, {0x10EC3, 0x10EC4}, {0x10EC6, 0x10EC7}, {0x10F30, 0x10F32}, {0x10F34, 0x10F44},
    {0x10F51, 0x10F53}, {0x10F70, 0x10F73}, {0x10F76, 0x10F81}, {0x10FB0, 0x10FB0}, {0x10FB2, 0x10FB3}, {0x10FB8, 0x10FB8},
    {0x10FBB, 0x10FBC}, {0x10FBE, 0x10FBF}, {0x10FC1, 0x10FC1}, {0x10FC4, 0x10FC4}, {0x10FCA, 0x10FCB}, {0x1E900, 0x1E943},
};
constexpr Range kJoinsPrevious[] = {
    {0x622, 0x625},     {0x627, 0x627},     {0x629, 0x629},     {0x62F, 0x632},     {0x648, 0x648},     {0x671, 0x673},
    {0x675, 0x677},     {0x688, 0x699},     {0x6C0, 0x6C0},     {0x6C3, 0x6CB},     {0x6CD, 0x6CD},     {0x6CF, 0x6CF},
    {0x6D2, 0x6D5},     {0x6EE, 0x6EF},     {0x710, 0x710},     {0x715, 0x719},     {0x71E, 0x71E},     {0x728, 0x728},
    {0x72A, 0x72A},     {0x72C, 0x72C},     {0x72F, 0x72F},     {0x74D, 0x74D},     {0x759, 0x75B},     {0x76B, 0x76C},
    {0x771, 0x771},     {0x773, 0x774},     {0x778, 0x779},     {0x840, 0x840},     {0x846, 0x847},     {0x849, 0x849},
    {0x854, 0x854},     {0x856, 0x858},     {0x867, 0x867},     {0x869, 0x882},     {0x88E, 0x88E},     {0x8AA, 0x8AC},
    {0x8AE, 0x8AE},     {0x8B1, 0x8B2},     {0x8B9, 0x8B9},     {0x10AC5, 0x10AC5}, {0x10AC7, 0x10ACA}, {0x10ACE, 0x10AD2},
    {0x10ADD, 0x10ADD}, {0x10AE1, 0x10AE1}, {0x10AE4, 0x10AE4}, {0x10AEF, 0x10AEF}, {0x10B81, 0x10B81}, {0x10B83, 0x10B85},
    {0x10B89, 0x10B89}, {0x10B8C, 0x10B8C}, {0x10B8E, 0x10B8F}, {0x10B91, 0x10BAC}, {0x10D22, 0x10D22}, {0x10EC2, 0x10EC2},
    {0x10F33, 0x10F33}, {0x10F54, 0x10F54}, {0x10F74, 0x10F75}, {0x10FB4, 0x10FB6}, {0x10FB9, 0x10FBA}, {0x10FBD, 0x10FBD},
    {0x10FC2, 0x10FC3}, {0x10FC9, 0x10FC9},
};

constexpr Range kGreek[] = {{0x370, 0x373}, {0x375, 0x377},   {0x37A, 0x37F},   {0x386, 0x386},  {0x388, 0x3E1},
                            {0x3F0, 0x3FF}, {0x1D26, 0x1D2A}, {0x1F00, 0x1FFF}, {0xAB65, 0xAB65}};
constexpr Range kHebrew[] = {{0x591, 0x5F4}};
constexpr Range kHanOrKana[] = {{0x3005, 0x3005}, {0x3007, 0x3007}, {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3041, 0x3096},
                                {0x309D, 0x309F}, {0x30A1, 0x30FA}, {0x30FD, 0x30FF},   {0x31F0, 0x31FF},   {0x3400, 0x4DBF},
                                {0x4E00, 0x9FFF}, {0xFA0E, 0xFA29}, {0x1AFF0, 0x1B122}, {0x1B132, 0x1B167}, {0x20000, 0x323AF}};

// RFC 5892, 2.6, 2.8 and 2.9: exceptions, blocks of signs, conjoining Jamo.
constexpr Range kAllowed[] = {{0xDF, 0xDF}, {0x3C2, 0x3C2}, {0x6FD, 0x6FE}, {0xF0B, 0xF0B}, {0x3007, 0x3007}};
constexpr Range kInContext[] = {{0xB7, 0xB7},   {0x375, 0x375}, {0x5F3, 0x5F4},  {0x30FB, 0x30FB},
                                {0x660, 0x669}, {0x6F0, 0x6F9}, {0x200C, 0x200D}};
constexpr Range kForbidden[] = {{0x640, 0x640},   {0x7FA, 0x7FA},   {0x302E, 0x302F},   {0x3031, 0x3035},
                                {0x303B, 0x303B}, {0x20D0, 0x20FF}, {0x1D100, 0x1D24F}, {0x1100, 0x11FF},
                                {0xA960, 0xA97C}, {0xD7B0, 0xD7FB}, {0xD800, 0xDFFF}};

// Itself after case folding and compatibility composition.
bool is_stable(uint32_t code) {
  utf8proc_int32_t out[32];
  int last_class = 0;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPAT | UTF8PROC_COMPOSE | UTF8PROC_CASEFOLD | UTF8PROC_STABLE);
  const auto size = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), out, 32, options, &last_class);
  return size > 0 && size <= 32 && utf8proc_normalize_utf32(out, size, options) == 1 &&
         out[0] == static_cast<utf8proc_int32_t>(code);
}

}  // namespace

bool is_mark(uint32_t code) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
}

bool label_may_hold(uint32_t code) {
  if (code < 0x80) return code == '-' || (code >= '0' && code <= '9') || (code >= 'a' && code <= 'z');
  if (code > 0x10FFFF) return false;
  if (in(kAllowed, code) || in(kInContext, code)) return true;
  if (in(kForbidden, code)) return false;
  const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(code));
  switch (property->category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC: return !property->ignorable && is_stable(code);
    default: return false;
  }
}

bool needs_context(uint32_t code) { return in(kInContext, code); }
bool is_greek(uint32_t code) { return in(kGreek, code); }
bool is_hebrew(uint32_t code) { return in(kHebrew, code); }
bool is_han_or_kana(uint32_t code) { return in(kHanOrKana, code); }
bool is_virama(uint32_t code) { return utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class == 9; }

Joining joining_of(uint32_t code) {
  if (in(kJoinsNext, code)) return Joining::kNext;
  if (in(kJoinsPrevious, code)) return Joining::kPrevious;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  const bool is_thin = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME || category == UTF8PROC_CATEGORY_CF;
  return is_thin ? Joining::kTransparent : Joining::kNone;
}

Direction direction_of(uint32_t code) {
  switch (utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->bidi_class) {
    case UTF8PROC_BIDI_CLASS_L: return Direction::kLeft;
    case UTF8PROC_BIDI_CLASS_R:
    case UTF8PROC_BIDI_CLASS_AL: return Direction::kRight;
    case UTF8PROC_BIDI_CLASS_AN: return Direction::kArabicNumber;
    case UTF8PROC_BIDI_CLASS_EN: return Direction::kNumber;
    case UTF8PROC_BIDI_CLASS_NSM: return Direction::kMark;
    case UTF8PROC_BIDI_CLASS_ES:
    case UTF8PROC_BIDI_CLASS_CS:
    case UTF8PROC_BIDI_CLASS_ET:
    case UTF8PROC_BIDI_CLASS_ON:
    case UTF8PROC_BIDI_CLASS_BN: return Direction::kNeutral;
    default: return Direction::kOther;
  }
}

bool is_composed(const std::vector<uint32_t>& codes) {
  if (std::none_of(codes.begin(), codes.end(), is_mark)) return true;  // what composes with something before it is a mark
  std::vector<utf8proc_int32_t> out;
  for (const uint32_t code : codes) {
    utf8proc_int32_t parts[32];
    int last_class = 0;
    const auto size = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts, 32, UTF8PROC_DECOMPOSE, &last_class);
    if (size <= 0 || size > 32) return false;
    out.insert(out.end(), parts, parts + size);
  }
  // Canonical order: marks of a run by their class.
  for (auto at = out.begin(); at != out.end();) {
    const auto ccc = [](utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; };
    const auto end = std::find_if(at + 1, out.end(), [&](utf8proc_int32_t code) { return ccc(code) == 0; });
    std::stable_sort(ccc(*at) == 0 ? at + 1 : at, end, [&](utf8proc_int32_t a, utf8proc_int32_t b) { return ccc(a) < ccc(b); });
    at = end;
  }
  const auto size = utf8proc_normalize_utf32(out.data(), static_cast<utf8proc_ssize_t>(out.size()),
                                             static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  return size == static_cast<utf8proc_ssize_t>(codes.size()) &&
         std::equal(codes.begin(), codes.end(), out.begin(),
                    [](uint32_t a, utf8proc_int32_t b) { return a == static_cast<uint32_t>(b); });
}

}  // namespace deepinfer
