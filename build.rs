//! Sets the link arguments of the shared library and generates the C header into the build folder.

fn main() {}
