#include "apps/cli.h"

int main(int argc, char** argv) {
  return gapless::run_cli(argc, argv);
}
