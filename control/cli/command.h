// The commands of the rocemu tool: one function each, with its own options. Each returns the exit
// code; errors are sentences on stderr.
#pragma once

#include <string>
#include <vector>

namespace rocemu::cli {

using Arguments = std::vector<std::string>;

int run_up(const Arguments& arguments);
int run_down(const Arguments& arguments);
int run_run(const Arguments& arguments);
int run_status(const Arguments& arguments);
int run_stat(const Arguments& arguments);
int run_link(const Arguments& arguments);
int run_capture(const Arguments& arguments);

}  // namespace rocemu::cli
