// base/result.h - errors are values.
//
// A function that can fail returns Result<T>: either the value or an Error with one of about a dozen codes and one line
// that says what went wrong, where, and what to do. Nothing in the product throws across a room's door.
//
//   Result<Config> read(path);
//   auto config = read(path);
//   if (!config) return config.error();          // an Error converts to any Result<U>
//   use(*config);
//   DI_TRY(auto shape, shape_of(*config));       // the same in one line
//   DI_CHECK_OK(write(path));                    // for Result<void>
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace deepinfer {

// What kind of failure it is. The table in api maps each to an HTTP status and to retry-or-not.
enum class ErrorCode {
  kInvalidArgument,  // the caller's input is wrong
  kNotFound,         // a file, tensor, model or id does not exist
  kCorrupt,          // bytes from outside are damaged or not in the stated format
  kUnsupported,      // valid, but this build or checkpoint cannot do it
  kTooLarge,         // a limit of size or length is exceeded
  kExhausted,        // memory, pages, queue or disk is full: later may work
  kUnavailable,      // a part is down, draining or not ready yet: retry elsewhere
  kDeadline,         // took longer than allowed
  kCancelled,        // the client or an operator asked for it
  kPermission,       // not allowed
  kIo,               // the operating system reported a failure
  kInternal,         // our bug
};

const char* error_code_name(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

inline Error invalid_argument(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }
inline Error not_found(std::string message) { return {ErrorCode::kNotFound, std::move(message)}; }
inline Error corrupt(std::string message) { return {ErrorCode::kCorrupt, std::move(message)}; }
inline Error unsupported(std::string message) { return {ErrorCode::kUnsupported, std::move(message)}; }
inline Error too_large(std::string message) { return {ErrorCode::kTooLarge, std::move(message)}; }
inline Error exhausted(std::string message) { return {ErrorCode::kExhausted, std::move(message)}; }
inline Error io_error(std::string message) { return {ErrorCode::kIo, std::move(message)}; }
inline Error internal_error(std::string message) { return {ErrorCode::kInternal, std::move(message)}; }

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // REQUIRES: ok().
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }

  // REQUIRES: !ok().
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}
  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

// A broken promise inside the program: prints where and stops. Never reached by bytes from outside.
[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace deepinfer

#define DI_CONCAT_INNER(a, b) a##b
#define DI_CONCAT(a, b) DI_CONCAT_INNER(a, b)
#define DI_TRY_IMPL(tmp, target, expression) \
  auto tmp = (expression);                   \
  if (!tmp) return std::move(tmp).error();   \
  target = *std::move(tmp)
#define DI_TRY(target, expression) DI_TRY_IMPL(DI_CONCAT(di_try_, __LINE__), target, expression)
#define DI_CHECK_OK(expression)                                              \
  do {                                                                       \
    if (auto di_status = (expression); !di_status) return di_status.error(); \
  } while (0)
#define DI_CHECK(condition) ((condition) ? void(0) : ::deepinfer::check_failed(__FILE__, __LINE__, #condition))
