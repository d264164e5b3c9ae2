use tallow_data::Normalize;
use tallow_data::transform::{ColorJitter, pipeline};

fn main() {
    let _ = pipeline()
        .to_tensor()
        .normalize(Normalize::all(0.5, 0.25))
        .color_jitter(ColorJitter::default());
}
