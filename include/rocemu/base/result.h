// Result<T>: a value or an errno with a sentence. For expected, local failures of set-up and
// control code; the packet path uses enums (drop reasons, statuses) instead.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace rocemu {

/// Why something could not be done. `code` is a positive errno value; `text` is for a person.
struct Error {
  int code = 0;
  std::string text;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  const T* operator->() const { return &std::get<T>(state_); }
  const T& operator*() const& { return std::get<T>(state_); }
  T* operator->() { return &std::get<T>(state_); }
  T& operator*() & { return std::get<T>(state_); }
  const Error& error() const { return std::get<Error>(state_); }

 private:
  std::variant<T, Error> state_;
};

/// Success without a value, or an error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

}  // namespace rocemu
