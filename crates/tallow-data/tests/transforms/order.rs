//! Pipelines in a wrong order don't compile, and the compiler says why.

use tallow_data::Normalize;
use tallow_data::transform::{FixedPipeline, NormalizedImage, pipeline};

#[test]
fn wrong_orders_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/transforms/order/*.rs");
}

#[test]
fn the_right_order_compiles_and_serves_evaluation() {
    fn evaluate(pipeline: impl FixedPipeline<Output = NormalizedImage>) -> [usize; 3] {
        let image = crate::picture([40, 50], 3);
        pipeline.apply_fixed(image).unwrap().shape()
    }
    let eval = pipeline()
        .resize(36)
        .center_crop(32)
        .to_tensor()
        .normalize(Normalize::all(0.5, 0.25));
    assert_eq!(evaluate(eval), [3, 32, 32]);
}
