// What the commands share: options, the daemon's control socket, and where the parts of rocemu are.
#pragma once

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>

#include "control/cli/command.h"

namespace rocemu::cli {

/// A sentence for the user; main() prints it and leaves with `exit_code`.
struct Failure : std::runtime_error {
  explicit Failure(const std::string& text, int code = 1)
      : std::runtime_error(text), exit_code(code) {}
  int exit_code;
};

/// Parses `arguments` with `options` (to which --help and --runtime-dir are added) and positional
/// words named by `positional`. Prints help and returns nothing when it was asked for. Throws
/// Failure.
std::optional<boost::program_options::variables_map> parse_options(
    const Arguments& arguments, boost::program_options::options_description& options,
    const std::string& usage,
    const boost::program_options::positional_options_description& positional = {});

/// --runtime-dir, or the default.
std::string runtime_dir(const boost::program_options::variables_map& given);

/// Sends one request to the daemon and returns its answer. Throws Failure: no daemon, no right,
/// refused.
nlohmann::json ask_daemon(const std::string& runtime_dir, const nlohmann::json& request);

/// A file of the build tree beside this executable, or of an installation. Throws Failure.
std::string find_part(const std::string& name);

}  // namespace rocemu::cli
