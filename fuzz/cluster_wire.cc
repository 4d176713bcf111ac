// A frame of another process: the first byte says which message. What reads is written and read again to the same bytes.
#include "cluster/wire.h"

namespace {

template <class M>
void try_message(std::string_view bytes) {
  using namespace deepinfer;
  const Result<M> message = read_message<M>(bytes);
  if (!message) return;
  const std::string written = write_message(*message);
  const Result<M> again = read_message<M>(written);
  DI_CHECK(again && write_message(*again) == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case HelloMessage::kType: try_message<HelloMessage>(bytes); break;
    case SubmitMessage::kType: try_message<SubmitMessage>(bytes); break;
    case CancelMessage::kType: try_message<CancelMessage>(bytes); break;
    case FinishMessage::kType: try_message<FinishMessage>(bytes); break;
    case EventMessage::kType: try_message<EventMessage>(bytes); break;
    case RefusedMessage::kType: try_message<RefusedMessage>(bytes); break;
    case LoadMessage::kType: try_message<LoadMessage>(bytes); break;
    case BlocksMessage::kType: try_message<BlocksMessage>(bytes); break;
    case EncodeMessage::kType: try_message<EncodeMessage>(bytes); break;
    case EncodedMessage::kType: try_message<EncodedMessage>(bytes); break;
    default: break;
  }
  return 0;
}
