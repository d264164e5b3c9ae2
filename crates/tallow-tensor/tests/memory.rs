//! The hint to the allocator.

use tallow_tensor::memory;

#[test]
fn the_hint_is_taken_where_there_is_glibc_and_may_be_given_again() {
    let glibc = cfg!(all(target_os = "linux", target_env = "gnu"));
    assert_eq!(memory::keep_freed(), glibc);
    assert_eq!(memory::keep_freed(), glibc);
}
