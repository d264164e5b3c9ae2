//! Which module is running: a stack of paths, one a thread, that errors, recorded graphs and profilers read.
//!
//! A layer keeps the prefix of its [`VarBuilder`](candle_nn::VarBuilder) and enters it in `forward`:
//!
//! ```
//! use tallow_tensor::scope;
//!
//! let outer = scope::enter("layer1.0");
//! {
//!     let _inner = scope::enter("layer1.0.conv1");
//!     assert_eq!(scope::path(), "layer1.0.conv1");
//! }
//! assert_eq!(scope::path(), "layer1.0");
//! drop(outer);
//! assert_eq!(scope::path(), "");
//! ```
//!
//! Each scope is also a [`tracing`] span: target `tallow`, name `module`, field `module` with the path.

use std::cell::RefCell;
use std::marker::PhantomData;

/// The open paths, joined in one string so that entering doesn't allocate once the string has grown.
struct Stack {
    text: String,
    starts: Vec<usize>,
}

impl Stack {
    fn path(&self) -> &str {
        self.starts.last().map_or("", |&start| &self.text[start..])
    }

    fn push(&mut self, path: &str) -> usize {
        let depth = self.starts.len();
        self.starts.push(self.text.len());
        self.text.push_str(path);
        depth
    }

    fn truncate(&mut self, depth: usize) {
        if let Some(&start) = self.starts.get(depth) {
            self.text.truncate(start);
            self.starts.truncate(depth);
        }
    }
}

thread_local! {
    static STACK: RefCell<Stack> = const {
        RefCell::new(Stack { text: String::new(), starts: Vec::new() })
    };
}

/// Leaves the scope when dropped, and with it any scope that was entered later and is still open.
#[must_use = "the scope ends when the guard is dropped; bind it to a name, not to `_`"]
#[derive(Debug)]
pub struct ScopeGuard {
    depth: usize,
    _span: tracing::span::EnteredSpan,
    // The stack is the thread's own, so the guard must stay on it.
    _not_send: PhantomData<*const ()>,
}

impl Drop for ScopeGuard {
    fn drop(&mut self) {
        STACK.with_borrow_mut(|stack| stack.truncate(self.depth));
    }
}

/// Enters a module by its full path, such as `layer1.0.conv1`; `path` is not joined to that of the scope around it.
pub fn enter(path: &str) -> ScopeGuard {
    let span = tracing::info_span!(target: "tallow", "module", module = path).entered();
    ScopeGuard {
        depth: STACK.with_borrow_mut(|stack| stack.push(path)),
        _span: span,
        _not_send: PhantomData,
    }
}

/// Enters a part of the module that is running: `name` is joined to the present path with a dot.
///
/// ```
/// use tallow_tensor::scope;
///
/// let _model = scope::enter("encoder");
/// let _part = scope::enter_child("head");
/// assert_eq!(scope::path(), "encoder.head");
/// ```
pub fn enter_child(name: &str) -> ScopeGuard {
    let parent = path();
    if parent.is_empty() {
        enter(name)
    } else {
        enter(&format!("{parent}.{name}"))
    }
}

/// The path of the innermost scope on this thread; empty outside any.
pub fn path() -> String {
    STACK.with_borrow(|stack| stack.path().to_string())
}
