// Names of hosts among the expressions of grammar/regex.h: A-labels are no regular language, so each place of a name is an
// expression.
#include <algorithm>

#include "grammar/regex.h"

namespace deepinfer {

Rx RegexArena::host_node(const HostName& name) { return intern(Kind::kHostName, name.packed(), name.ends(), true); }

Rx RegexArena::host_name() {
  has_hosts_ = true;
  return host_node(HostName());
}

Rx RegexArena::with_plain_hosts(Rx rx) {
  if (!has_hosts_ || (kind(rx) != Kind::kAnd && kind(rx) != Kind::kOr)) return rx;
  const bool is_and = kind(rx) == Kind::kAnd;
  std::vector<Rx> parts(args(rx).begin(), args(rx).end());
  for (Rx& part : parts) {
    if (kind(part) != Kind::kHostName) {
      part = with_plain_hosts(part);
    } else if (const HostName name = HostName::unpacked(args(part)); is_and && !name.in_a_label()) {
      part = host_node(name.plainly());
    }
  }
  const Rx out = is_and ? intersect(std::move(parts)) : alternate(std::move(parts));
  return out == rx || (is_and && !alive(out)) ? rx : out;
}

bool RegexArena::is_costly(Rx rx) const {
  if (kind(rx) == Kind::kConcat) rx = arg(rx, 0);
  if (kind(rx) == Kind::kJsonBody) rx = arg(rx, 0);
  return kind(rx) == Kind::kHostName && HostName::unpacked(args(rx)).in_a_label();
}

size_t RegexArena::free_bytes(Rx rx) const {
  if (!is_costly(rx) || kind(rx) != Kind::kConcat || nullable(arg(rx, 1))) return 0;
  const Rx name = kind(arg(rx, 0)) == Kind::kJsonBody ? arg(arg(rx, 0), 0) : arg(rx, 0);
  return HostName::unpacked(args(name)).free_bytes();
}

Rx RegexArena::derive_alone(Rx rx, uint8_t byte) {
  if (!is_costly(rx)) return derive(rx, byte);
  if (kind(rx) == Kind::kConcat) {
    const Rx first = arg(rx, 0), second = arg(rx, 1);
    const Rx inside = concat(derive_alone(first, byte), second);
    return nullable(first) ? alternate({inside, derive(second, byte)}) : inside;
  }
  if (kind(rx) == Kind::kJsonBody) return json_body(derive_alone(arg(rx, 0), byte));  // it holds nothing that is escaped
  const auto next = HostName::unpacked(args(rx)).after(byte);
  return next ? host_node(*next) : kNothing;
}

RegexArena::Edges RegexArena::host_edges(Rx rx) {
  const HostName name = HostName::unpacked(args(rx));
  Edges out;
  for (int byte = '-'; byte <= 'z'; ++byte) {
    const auto after = name.after(static_cast<uint8_t>(byte));
    if (!after) continue;
    const Rx next = host_node(*after);
    auto place = std::find_if(out.begin(), out.end(), [&](const Edge& edge) { return edge.next == next; });
    if (place == out.end()) place = out.insert(out.end(), {{}, next});
    place->bytes.add(static_cast<uint8_t>(byte));
  }
  return out;
}

}  // namespace deepinfer
