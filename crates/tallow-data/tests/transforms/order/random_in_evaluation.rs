use tallow_data::transform::{FixedPipeline, pipeline};

fn evaluate(_: impl FixedPipeline) {}

fn main() {
    evaluate(pipeline().random_horizontal_flip(0.5).to_tensor());
}
