//! How many pictures a second are decoded and transformed, on one thread: `cargo bench -p tallow-data --bench transforms`.

fn main() {}
