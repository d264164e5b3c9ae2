//! Work is split by shape alone.

use std::sync::Mutex;

use tallow_kernels::parallel::{for_each, reduce, rows};

fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap()
}

#[test]
fn leaves_cover_every_item_once_and_start_where_the_shape_says() {
    for (items, grain) in [(0, 4), (1, 4), (4, 4), (5, 4), (64, 7), (1000, 1), (10, 0)] {
        let starts = |threads| {
            let mut y = vec![0u32; items * 3];
            let starts = Mutex::new(Vec::new());
            pool(threads).install(|| {
                for_each(items, grain, rows(&mut y[..], 3), |first, leaf| {
                    starts.lock().unwrap().push((first, leaf.data.len() / 3));
                    for (i, y) in leaf.data.iter_mut().enumerate() {
                        *y += (first * 3 + i) as u32 + 1;
                    }
                });
            });
            assert!(y.iter().enumerate().all(|(i, &y)| y == i as u32 + 1));
            let mut starts = starts.into_inner().unwrap();
            starts.sort_unstable();
            starts
        };
        let one = starts(1);
        assert!(
            one.iter()
                .all(|&(first, len)| first % grain.max(1) == 0 && len <= grain.max(1))
        );
        assert_eq!(one, starts(2));
        assert_eq!(one, starts(3));
    }
}

#[test]
fn joins_happen_in_one_order_for_any_number_of_threads() {
    let order = |threads| {
        pool(threads).install(|| {
            reduce(
                23,
                2,
                (),
                |first, ()| first.to_string(),
                |a, b| format!("({a} {b})"),
            )
        })
    };
    assert!(order(1).is_some());
    assert_eq!(order(1), order(2));
    assert_eq!(order(1), order(3));
    assert_eq!(reduce(0, 2, (), |_, ()| 1, |a, b| a + b), None);
}
