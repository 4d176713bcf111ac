// The program's first instructions. Everything else is compiled for AVX2, so this file alone is compiled for any x86-64
// processor, runs before the other files' initialisers, and says in words what would otherwise be a SIGILL.
#include <unistd.h>

#include <cstring>

int run_command_line(int argc, char** argv);

namespace {

void leave(const char* text) {
  const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
  _exit(written < 0 ? 2 : 1);
}

__attribute__((constructor(101))) void check_processor() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2")) {
    leave("deepinfer: this processor lacks AVX2, FMA or BMI2; an x86-64-v3 processor (2013 or later) is needed\n");
  }
}

}  // namespace

int main(int argc, char** argv) { return run_command_line(argc, argv); }
