//! Scratch memory is aligned, reused, and never more than was held at once.

use tallow_kernels::workspace::Workspace;

#[test]
fn buffers_start_on_a_cache_line_and_have_the_length_asked_for() {
    let workspace = Workspace::new();
    for len in [0, 1, 16, 17, 1000] {
        let scratch = workspace.take(len);
        assert_eq!(scratch.len(), len);
        assert_eq!(scratch.as_ptr() as usize % 64, 0);
    }
}

#[test]
fn a_buffer_given_back_is_used_again() {
    let workspace = Workspace::new();
    let mut scratch = workspace.take(1000);
    scratch.fill(1.0);
    drop(scratch);
    let held = workspace.bytes();
    for len in [1000, 10, 999, 1] {
        let scratch = workspace.take(len);
        assert_eq!(workspace.bytes(), 0, "the only buffer is held");
        assert!(scratch.iter().all(|value| *value == 1.0));
    }
    assert_eq!(workspace.bytes(), held);
}

#[test]
fn the_smallest_buffer_that_fits_is_taken_and_the_largest_grows() {
    let workspace = Workspace::new();
    let sizes = [64, 640, 6400];
    drop(sizes.map(|len| workspace.take(len)));
    let middle = workspace.take(600);
    assert_eq!(workspace.bytes(), (64 + 6400) * 4);
    drop(middle);
    drop(workspace.take(10_000));
    assert_eq!(workspace.bytes(), (64 + 640 + 10_000) * 4);
    workspace.release();
    assert_eq!(workspace.bytes(), 0);
}
