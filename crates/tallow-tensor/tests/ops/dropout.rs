//! Random omission: rates, scale, gradients, and what a mask depends on.

use crate::golden::flat;
use candle_core::{DType, Device, Result, Tensor, Var};
use tallow_tensor::{ops, rng};

type Drop = fn(&Tensor, f64, bool) -> Result<Tensor>;
const BOTH: [(&str, Drop); 2] = [("dropout", ops::dropout), ("drop_path", ops::drop_path)];

fn ones(shape: impl Into<candle_core::Shape>, dtype: DType) -> Var {
    Var::ones(shape, dtype, &Device::Cpu).expect("a plain tensor")
}

#[test]
fn evaluation_and_a_rate_of_zero_change_nothing_and_draw_nothing() -> Result<()> {
    let xs = ones((3, 4), DType::F32);
    for (name, drop) in BOTH {
        let before = rng::state();
        assert_eq!(flat(&drop(&xs, 0.5, false)?), [1.; 12], "{name}");
        assert_eq!(flat(&drop(&xs, 0., true)?), [1.; 12], "{name}");
        assert_eq!(rng::state(), before, "{name}");
    }
    Ok(())
}

#[test]
fn what_is_kept_is_scaled_and_its_share_is_as_asked() -> Result<()> {
    for (name, drop) in BOTH {
        rng::begin_step(42, 0);
        let ys = flat(&drop(&ones((20_000, 1), DType::F32), 0.25, true)?);
        let kept = ys.iter().filter(|&&y| y != 0.).count();
        assert!(
            ys.iter().all(|&y| y == 0. || (y - 4. / 3.).abs() < 1e-6),
            "{name}"
        );
        // Five standard deviations of the binomial distribution.
        assert!(kept.abs_diff(15_000) < 310, "{name}: {kept}");
    }
    Ok(())
}

#[test]
fn drop_path_drops_samples_whole() -> Result<()> {
    rng::begin_step(42, 0);
    let ys = ops::drop_path(&ones((64, 2, 3), DType::F32), 0.5, true)?;
    let samples = ys.flatten_from(1)?.to_vec2::<f32>()?;
    assert!(samples.iter().all(|s| s.iter().all(|&v| v == s[0])));
    assert!(samples.iter().any(|s| s[0] == 0.) && samples.iter().any(|s| s[0] == 2.));
    Ok(())
}

#[test]
fn the_gradient_is_the_mask() -> Result<()> {
    for (name, drop) in BOTH {
        for dtype in [DType::F32, DType::F64] {
            rng::begin_step(7, 3);
            let xs = ones((8, 5), dtype);
            let ys = drop(&xs, 0.5, true)?;
            let grads = ys.sum_all()?.backward()?;
            assert_eq!(grads.get(&xs).map(flat), Some(flat(&ys)), "{name}");
        }
    }
    Ok(())
}

#[test]
fn a_mask_depends_on_seed_step_and_draw_and_on_nothing_else() -> Result<()> {
    let xs = ones((64, 3), DType::F32);
    for (name, drop) in BOTH {
        let at = |seed, step, dtype| -> Result<[Vec<f64>; 2]> {
            rng::begin_step(seed, step);
            let xs = xs.to_dtype(dtype)?;
            Ok([flat(&drop(&xs, 0.5, true)?), flat(&drop(&xs, 0.5, true)?)])
        };
        let [first, second] = at(1, 1, DType::F32)?;
        assert_eq!(
            at(1, 1, DType::F64)?,
            [first.clone(), second.clone()],
            "{name}"
        );
        assert_ne!(first, second, "{name}: draws of a step");
        assert_ne!(at(1, 2, DType::F32)?[0], first, "{name}: steps");
        assert_ne!(at(2, 1, DType::F32)?[0], first, "{name}: seeds");
    }
    Ok(())
}

#[test]
fn a_rate_outside_its_range_is_refused() {
    let xs = ones((2, 2), DType::F32);
    for (name, drop) in BOTH {
        for p in [-0.1, 1., 1.5, f64::NAN] {
            let error = drop(&xs, p, true).expect_err("out of range").to_string();
            assert!(
                error.contains(name) && error.contains("0 <= p < 1"),
                "{error}"
            );
        }
    }
}
