#include "grammar/schema_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "grammar/regex_syntax.h"
#include "grammar/schema_reader.h"

namespace deepinfer {
namespace {

struct Format {
  const char* name;
  std::string pattern;
};

// Days by month, with 29 February in leap years only (RFC 3339, Gregorian).
std::string date() {
  const std::string leap = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
  return "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|"
         "2[0-8]))|" +
         leap + "-02-29)";
}

// A leap second is 23:59:60 of UTC; with an offset, of the clock that is that far from it.
std::string time() {
  const std::string fraction = "(?:\\.[0-9]+)?";
  std::string leap = "23:59:60" + fraction + "(?:[Zz]|[+-]00:00)";
  for (int offset = 1; offset < 24 * 60; ++offset) {
    for (const int sign : {1, -1}) {
      const int local = (23 * 60 + 59 + sign * offset + 24 * 60) % (24 * 60);
      // Offsets in use are whole quarters of an hour.
      if (offset % 15 == 0)
        leap += fmt::format("|{:02}:{:02}:60{}\\{}{:02}:{:02}", local / 60, local % 60, fraction, sign > 0 ? '+' : '-',
                            offset / 60, offset % 60);
    }
  }
  return "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]" + fraction + "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])|" + leap +
         ")";
}

std::string duration() {
  const std::string clock = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
  const std::string days = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)";
  return "P(?:" + days + "(?:" + clock + ")?|" + clock + "|[0-9]+W)";
}

std::string ipv4() {
  const std::string byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  return byte + "(?:\\." + byte + "){3}";
}

std::string ipv6() {
  const std::string group = "[0-9a-fA-F]{1,4}", tail = "(?:" + group + ":" + group + "|" + ipv4() + ")";
  std::string out = "(?:" + group + ":){6}" + tail;
  // With "::" in place of two groups or more; `left` groups stand before it.
  for (int left = 0; left <= 7; ++left) {
    const std::string before = left == 0 ? "" : group + "(?::" + group + "){" + std::to_string(left - 1) + "}";
    for (int right = 0; left + right <= 7; ++right) {
      std::string after;
      if (right > 0) after = group + "(?::" + group + "){" + std::to_string(right - 1) + "}";
      out += "|" + before + "::" + after;
      if (left + right + 2 <= 7)
        out += "|" + before + "::" + (right > 0 ? "(?:" + group + ":){" + std::to_string(right) + "}" : "") + ipv4();
    }
  }
  return "(?:" + out + ")";
}

std::string email() {
  const std::string atom = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+";
  const std::string local = "(?:" + atom + "(?:\\." + atom + ")*|\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\")";
  return local + "@(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*|\\[(?:" +
         ipv4() + "|IPv6:" + ipv6() + ")\\])";
}

// RFC 3986; with an authority, an absolute path or a rootless one.
std::string uri(bool needs_scheme) {
  const std::string plain = "[a-zA-Z0-9._~!$&'()*+,;=:@-]", percent = "%[0-9a-fA-F]{2}";
  const std::string pchar = "(?:" + plain + "|" + percent + ")";
  const std::string user = "(?:(?:[a-zA-Z0-9._~!$&'()*+,;=:-]|" + percent + ")*@)?";
  const std::string host = "(?:\\[" + ipv6() + "\\]|(?:[a-zA-Z0-9._~!$&'()*+,;=-]|" + percent + ")*)";
  const std::string path = "(?:/" + pchar + "*)*";
  const std::string authority = "//" + user + host + "(?::[0-9]*)?" + path;
  const std::string tail = "(?:\\?(?:" + pchar + "|[/?])*)?(?:#(?:" + pchar + "|[/?])*)?";
  const std::string rooted = "/(?:" + pchar + "+" + path + ")?";
  const std::string absolute = "[a-zA-Z][a-zA-Z0-9+.-]*:(?:" + authority + "|" + rooted + "|" + pchar + "+" + path + ")?" + tail;
  if (needs_scheme) return absolute;
  const std::string segment = "(?:[a-zA-Z0-9._~!$&'()*+,;=@-]|" + percent + ")+";
  return "(?:" + absolute + "|(?:" + authority + "|" + rooted + "|" + segment + path + ")?" + tail + ")";
}

const std::vector<Format>& formats() {
  static const std::vector<Format> kFormats{
      {"date", date()},
      {"time", time()},
      {"date-time", date() + "[Tt]" + time()},
      {"duration", duration()},
      {"email", email()},
      {"hostname", ""},  // no expression: grammar/host_name.h
      {"ipv4", ipv4()},
      {"ipv6", ipv6()},
      {"uri", uri(true)},
      {"uri-reference", uri(false)},
      {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
      {"json-pointer", "(?:/(?:[^~/]|~[01])*)*"},
  };
  return kFormats;
}

}  // namespace

std::optional<Rx> format_text(RegexArena& arena, std::string_view name) {
  for (const Format& format : formats()) {
    if (format.name != name) continue;
    if (format.pattern.empty()) return arena.host_name();
    const auto rx = parse_regex(arena, format.pattern, RegexUse::kWhole);
    return rx ? std::optional(*rx) : std::nullopt;
  }
  return std::nullopt;
}

bool is_standard_format(std::string_view name) {
  for (const char* other :
       {"idn-email", "idn-hostname", "iri", "iri-reference", "uri-template", "relative-json-pointer", "regex"}) {
    if (name == other) return true;
  }
  return std::any_of(formats().begin(), formats().end(), [&](const Format& format) { return format.name == name; });
}

const std::vector<const char*>& schema_formats() {
  static const std::vector<const char*> kNames = [] {
    std::vector<const char*> names;
    for (const Format& format : formats()) names.push_back(format.name);
    return names;
  }();
  return kNames;
}

}  // namespace deepinfer
