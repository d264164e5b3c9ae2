//! The stack of module paths.

use tallow_tensor::scope;

#[test]
fn the_innermost_scope_wins_and_ends_with_its_guard() {
    assert_eq!(scope::path(), "");
    let outer = scope::enter("net");
    {
        let _inner = scope::enter("net.layer1.0.conv1");
        assert_eq!(scope::path(), "net.layer1.0.conv1");
        let _root = scope::enter("");
        assert_eq!(scope::path(), "");
    }
    assert_eq!(scope::path(), "net");
    drop(outer);
    assert_eq!(scope::path(), "");
}

#[test]
fn a_child_is_joined_to_the_scope_around_it() {
    let _first = scope::enter_child("encoder");
    let _second = scope::enter_child("block.3");
    assert_eq!(scope::path(), "encoder.block.3");
}

#[test]
fn a_guard_dropped_out_of_order_ends_what_was_entered_after_it() {
    let outer = scope::enter("a");
    let inner = scope::enter("b");
    drop(outer);
    assert_eq!(scope::path(), "");
    let _next = scope::enter("c");
    drop(inner);
    assert_eq!(
        scope::path(),
        "c",
        "a late guard must not end scopes that it didn't open"
    );
}

#[test]
fn a_panic_leaves_the_stack_as_it_was() {
    let _outer = scope::enter("outer");
    let result = std::panic::catch_unwind(|| {
        let _inner = scope::enter("inner");
        panic!("in the middle of a forward pass");
    });
    assert!(result.is_err());
    assert_eq!(scope::path(), "outer");
}

#[test]
fn each_thread_has_its_own_stack() {
    let _here = scope::enter("here");
    let there = std::thread::spawn(scope::path).join();
    assert_eq!(there.ok().as_deref(), Some(""));
}
