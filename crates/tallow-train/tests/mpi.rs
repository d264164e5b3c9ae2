//! Ranks that are processes: this program starts itself by `mpirun` with two ranks, once for each case, and looks at how that ends.
//!
//!     cargo test -p tallow-train --features mpi --test mpi
//!
//! Says so and passes where there is no `mpirun`.

#[path = "suite/joint.rs"]
mod joint;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use candle_core::backprop::GradStore;
use joint::{Run, Small};
use tallow_compile::Options;
use tallow_tensor::Params;
use tallow_train::distributed::{Alone, Collective, Mpi};
use tallow_train::{Checkpointing, Error, Hook, HookContext, Result, Trainer};

/// What the ranks are to do, and where.
const CASE: &str = "TALLOW_MPI_CASE";
const FOLDER: &str = "TALLOW_MPI_FOLDER";
/// Longer than any case takes, shorter than a test that hangs.
const LIMIT: Duration = Duration::from_secs(240);

fn main() {
    if let Ok(case) = std::env::var(CASE) {
        if let Err(error) = rank(&case) {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
        return;
    }
    if Command::new("mpirun").arg("--version").output().is_err() {
        println!("mpi: skipped, since there is no mpirun (Debian: apt-get install openmpi-bin)");
        return;
    }
    let cases: [(&str, fn(&str)); 5] = [
        ("equal", equals_one_process),
        ("error", an_error_names_its_rank),
        ("killed", a_killed_rank_ends_the_run),
        ("hangs", a_rank_that_hangs_is_named),
        ("leaves", a_rank_that_ends_early_is_named),
    ];
    for (case, check) in cases {
        let start = Instant::now();
        check(case);
        println!(
            "mpi: {case} ... ok in {:.1} s",
            start.elapsed().as_secs_f64()
        );
    }
}

/// Runs this program on two ranks.
fn mpirun(case: &str, folder: &Path) -> (Output, String) {
    let start = Instant::now();
    let output = Command::new("mpirun")
        .args(["--allow-run-as-root", "--oversubscribe", "-n", "2"])
        .arg(std::env::current_exe().unwrap())
        .env(CASE, case)
        .env(FOLDER, folder)
        // Two ranks on one small machine.
        .env("RAYON_NUM_THREADS", "1")
        .output()
        .unwrap();
    assert!(start.elapsed() < LIMIT, "{case} took {:?}", start.elapsed());
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output, text)
}

fn equals_one_process(case: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (output, text) = mpirun(case, folder.path());
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("equal: eager") && text.contains("equal: compiled"),
        "{text}"
    );
}

fn an_error_names_its_rank(case: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (output, text) = mpirun(case, folder.path());
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("the disk is full"), "{text}");
    // Rank 0 says so, or else mpirun, which ends it: `Process name: [[2664,1],1]`.
    let named = text.contains("rank 1 ended the run: the disk is full") || text.contains(",1]");
    assert!(named, "{text}");
    a_whole_checkpoint(folder.path());
}

fn a_killed_rank_ends_the_run(case: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (output, text) = mpirun(case, folder.path());
    assert!(!output.status.success(), "{text}");
    // The words of mpirun.
    assert!(
        text.contains("rank 1") && text.contains("signal 9"),
        "{text}"
    );
    a_whole_checkpoint(folder.path());
}

fn a_rank_that_hangs_is_named(case: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (output, text) = mpirun(case, folder.path());
    assert!(!output.status.success(), "{text}");
    assert!(
        text.contains("rank 1 ended the run: gave no answer for 3s"),
        "{text}"
    );
}

fn a_rank_that_ends_early_is_named(case: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (output, text) = mpirun(case, folder.path());
    assert!(!output.status.success(), "{text}");
    assert!(
        text.contains("rank 1 ended the run: has ended while other ranks wait"),
        "{text}"
    );
}

/// A training goes on from the last checkpoint, by one process alone.
fn a_whole_checkpoint(folder: &Path) {
    let params = Params::f32_cpu();
    let trainer = Trainer::builder(Small::new(&params), params)
        .resume(folder.join("checkpoint"))
        .build()
        .unwrap();
    assert_eq!(trainer.steps(), 3);
}

/// What a rank does.
fn rank(case: &str) -> Result<()> {
    if case == "equal" {
        return equal();
    }
    let timeout = Duration::from_secs(3);
    let ranks = match case {
        "hangs" => Mpi::with_timeout(timeout)?,
        _ => Mpi::new()?,
    };
    match (case, ranks.rank()) {
        ("hangs", 1) => loop {
            std::thread::park();
        },
        ("leaves", 1) => Ok(()),
        ("hangs" | "leaves", _) => ranks.barrier(),
        _ => {
            let params = Params::f32_cpu();
            let shard = ranks.shard();
            let folder = std::env::var(FOLDER).map_err(Error::hook)?;
            let path = Path::new(&folder).join("checkpoint");
            let mut trainer = Trainer::builder(Small::new(&params), params)
                .distributed(ranks)
                .sync_batch_norm(true)
                .hook(Box::new(Checkpointing::new(path).every_steps(3)))
                .hook(Box::new(Ends {
                    killed: case == "killed",
                }))
                .build()?;
            trainer.fit(&joint::training(&joint::images(320), 32, shard), None)?;
            Ok(())
        }
    }
}

/// Two ranks, and then rank 0 alone with both their batches.
fn equal() -> Result<()> {
    let ranks: Arc<dyn Collective> = Arc::new(Mpi::new()?);
    for (name, options) in [("eager", None), ("compiled", Some(Options::default()))] {
        let train = |ranks: Arc<dyn Collective>| {
            Run::new(Some(ranks), Small::new, |builder| {
                let builder = builder.sync_batch_norm(true);
                match &options {
                    Some(options) => builder.compile(options.clone()),
                    None => builder,
                }
            })
        };
        let joint = train(ranks.clone())?;
        if ranks.is_first() {
            joint.assert_equals(&train(Arc::new(Alone))?, name);
            println!("equal: {name}");
        }
    }
    ranks.barrier()
}

/// Rank 1 ends in the fifth step, after rank 0 has written a checkpoint, and before it could write another.
struct Ends {
    killed: bool,
}

impl Hook for Ends {
    fn on_gradients(&mut self, context: &mut HookContext<'_>, _: &mut GradStore) -> Result<()> {
        if (context.rank(), context.step()) != (1, 4) {
            return Ok(());
        }
        if self.killed {
            let id = std::process::id().to_string();
            let _status = Command::new("kill").args(["-KILL", &id]).status();
        }
        Err(Error::hook("the disk is full"))
    }
}
