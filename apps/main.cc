// isobar: the command. Parses, wires, loops; everything worth a test lives in the folders to the left.
#include <iostream>

int main() {
  std::cerr << "isobar: no subcommand yet\n";
  return 1;
}
