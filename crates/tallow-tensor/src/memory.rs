//! A hint to the allocator. Training allocates and frees the same large buffers at every step; glibc gives each of
//! them back to the system and asks for it again, page by zeroed page.

/// Tells the allocator to keep freed memory for reuse instead of returning it to the system.
///
/// On Linux with glibc this raises the thresholds that `MALLOC_MMAP_THRESHOLD_`, `MALLOC_TRIM_THRESHOLD_` and
/// `MALLOC_TOP_PAD_` set, for the whole process and for good, and gives whether glibc accepted all of them. Elsewhere it
/// does nothing and gives `false`. Call it once at the start of a program; a library shouldn't.
///
/// The process then holds on to its peak memory until it ends.
pub fn keep_freed() -> bool {
    imp::keep_freed()
}

/// Gives memory that was freed back to the system, also where [`keep_freed`] is on.
///
/// Compilers call it once they have seen a model run eagerly: a compiled plan brings memory of its own, and without this the
/// process would hold both. On Linux with glibc this is `malloc_trim`; elsewhere it does nothing.
pub fn give_back() {
    imp::give_back();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod imp {
    /// Blocks at most this large come from the heap rather than from mappings of their own: 1 GiB, or, where glibc
    /// refuses that (before 2.35), the 32 MiB that it takes.
    const MMAP_THRESHOLDS: [libc::c_int; 2] = [1 << 30, 32 << 20];
    /// This much free memory may stay at the end of the heap: just under 2 GiB, the largest that the call takes.
    const TRIM_THRESHOLD: libc::c_int = libc::c_int::MAX;
    /// The heap grows by this much more than is asked for: 64 MiB.
    const TOP_PAD: libc::c_int = 64 << 20;

    pub(super) fn keep_freed() -> bool {
        let mapped = MMAP_THRESHOLDS
            .into_iter()
            .any(|bytes| set(libc::M_MMAP_THRESHOLD, bytes));
        let kept = set(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD);
        let padded = set(libc::M_TOP_PAD, TOP_PAD);
        mapped && kept && padded
    }

    pub(super) fn give_back() {
        // SAFETY: takes an integer by value, locks each arena itself, and may be called at any time.
        unsafe { libc::malloc_trim(0) };
    }

    fn set(parameter: libc::c_int, value: libc::c_int) -> bool {
        // SAFETY: mallopt takes two integers by value, locks the arena itself, and may be called at any time.
        unsafe { libc::mallopt(parameter, value) == 1 }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod imp {
    pub(super) fn keep_freed() -> bool {
        false
    }

    pub(super) fn give_back() {}
}
