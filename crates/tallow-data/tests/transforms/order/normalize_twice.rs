use tallow_data::Normalize;
use tallow_data::transform::pipeline;

fn main() {
    let _ = pipeline()
        .to_tensor()
        .normalize(Normalize::all(0.5, 0.25))
        .normalize(Normalize::all(0.5, 0.25));
}
