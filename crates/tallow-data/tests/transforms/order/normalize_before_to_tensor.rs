use tallow_data::Normalize;
use tallow_data::transform::pipeline;

fn main() {
    let _ = pipeline().resize(256).normalize(Normalize::all(0.5, 0.25));
}
