//! Decoding: as Pillow does, within limits, and never a panic.

mod folders;
mod hostile;
mod written;
