//! Flame graphs: self times by the chain of spans around them, drawn by `inferno` as SVG that can be searched and zoomed.

use std::collections::BTreeMap;
use std::path::Path;

use inferno::flamegraph::{self, Options};

use crate::tree::Tree;
use crate::{Error, Profile, Result, folder};

impl Profile {
    /// Folded stacks, `thread;outer;inner microseconds`, a line each, as flame graph tools read them (`export_stacks`). What a
    /// plan runs on another thread is part of the stack that called it.
    pub fn folded(&self) -> Vec<String> {
        let tree = Tree::of(self);
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        let mut stacks: BTreeMap<u64, String> = BTreeMap::new();
        for (index, span) in self.spans.iter().enumerate() {
            let mut frames: Vec<String> = tree
                .ancestors(index)
                .map(|frame| self.frame(frame))
                .collect();
            let root = tree.ancestors(index).last().unwrap_or(index);
            let thread = self.spans[root].thread;
            let thread = self.threads.get(thread).map_or("thread", String::as_str);
            frames.push(clean(thread));
            frames.reverse();
            let stack = frames.join(";");
            *sums.entry(stack.clone()).or_default() += tree.own[index];
            if span.name == "batch" {
                stacks.insert(span.id, stack);
            }
        }
        for stage in &self.stages {
            let Some(stack) = stage.span.and_then(|span| stacks.get(&span)) else {
                continue;
            };
            if let Some(own) = sums.get_mut(stack) {
                let time = stage.time.min(*own);
                *own -= time;
                *sums
                    .entry(format!("{stack};{}", clean(&stage.name)))
                    .or_default() += time;
            }
        }
        sums.into_iter()
            .map(|(stack, time)| (stack, time / 1000))
            .filter(|(_, time)| *time > 0)
            .map(|(stack, time)| format!("{stack} {time}"))
            .collect()
    }

    fn frame(&self, index: usize) -> String {
        let span = &self.spans[index];
        match (span.name, &span.module) {
            ("module", Some(module)) => clean(module),
            ("kernel", Some(module)) if !module.is_empty() => {
                clean(&format!("{} ({module})", span.label()))
            }
            _ => clean(span.label()),
        }
    }

    /// The flame graph as SVG.
    ///
    /// # Errors
    /// [`Error::Flame`] if nothing was recorded.
    pub fn flame_graph(&self) -> Result<String> {
        let mut options = Options::default();
        options.title = "Where the time goes".into();
        options.count_name = "µs".into();
        options.min_width = 0.05;
        let lines = self.folded();
        let mut svg = Vec::new();
        flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
            .map_err(|error| Error::Flame(error.to_string()))?;
        String::from_utf8(svg).map_err(|error| Error::Flame(error.to_string()))
    }

    /// Writes the flame graph as SVG.
    ///
    /// # Errors
    /// [`Error::Flame`] if nothing was recorded; [`Error::Write`] names the file.
    pub fn write_flame_graph(&self, path: impl AsRef<Path>) -> Result<()> {
        let svg = self.flame_graph()?;
        folder::write(path.as_ref(), |file| {
            std::io::Write::write_all(file, svg.as_bytes())
        })
    }
}

/// Without what separates frames and counts.
fn clean(name: &str) -> String {
    name.replace([';', '\n'], ",")
}
