//! Data sets from files: good ones, wrong ones, and ones made to do harm.

mod folders;
mod hostile;
mod written;
