//! The figures of the project: measured on the program that users run, each beside its floor, in one go.

mod cluster;
mod document;
mod embedded;
mod figure;
mod growth;
mod million;
mod paired;
mod record;
mod sandbox;
mod scale;
mod table;
mod wire;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::Error;
use crate::stop::Stop;
use figure::{FIGURES, Figure, Kind, Measured};
use record::Recorded;

/// Measure the figures of the project and compare them with the last recorded ones
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// The program to measure
    #[arg(long, value_name = "FILE", default_value = "target/release/hearth")]
    hearth: PathBuf,
    /// Where docs/ is
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// Write the figures here as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only these parts; then nothing is recorded
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// A fraction of the rounds, to see that all of it works; then nothing is recorded
    #[arg(long)]
    quick: bool,
    /// Draw how cost grows instead, into docs/growth; takes about half an hour
    #[arg(long)]
    growth: bool,
    /// With --growth: only these
    #[arg(long, value_enum, value_delimiter = ',', requires = "growth")]
    axis: Vec<growth::Axis>,
    /// Measure a million parked residents instead, embedded and in a cluster, and print what was found;
    /// with --growth: let that curve go on to a million
    #[arg(long)]
    million: bool,
    /// Record nothing: neither docs/PERFORMANCE.md nor docs/performance.json
    #[arg(long)]
    no_record: bool,
}

/// What is measured together, on the same servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// `send` on one embedded server
    Embedded,
    /// Many residents on one server
    Scale,
    /// `send` and fail-over in a cluster
    Cluster,
    /// Sandbox sessions at the node
    Sandbox,
}

impl Part {
    fn figures(self) -> &'static [&'static str] {
        match self {
            Self::Embedded => &[
                "send_local_p50",
                "send_local_p99",
                "send_cpu_ms",
                "turns_per_s_64",
                "turns_per_s_512",
                "send_within_p50",
                "turns_within_64",
            ],
            Self::Scale => &["parked_bytes", "active_bytes", "list_page_p99", "restart_s"],
            Self::Cluster => &[
                "send_cluster_p50",
                "send_cluster_p99",
                "send_cross_p50",
                "send_cross_p99",
                "cluster_turns_per_s_64",
                "cluster_turns_per_s_512",
                "failover_p99",
                "failover_max",
            ],
            Self::Sandbox => &[
                "exec_p50",
                "exec_p99",
                "exec_shell_p50",
                "exec_grpc_p50",
                "execs_per_s_64",
                "session_bytes",
                "open_warm_p50",
                "open_warm_p99",
                "open_cold_p50",
                "output_mb_s",
                "output_cpu_s_gb",
            ],
        }
    }
}

/// How it is measured.
struct Plan {
    hearth: PathBuf,
    stop: Stop,
    quick: bool,
    parked: u64,
    active: u64,
    kills: u32,
    million: bool,
}

impl Plan {
    fn rounds(&self, full: u32) -> u32 {
        if self.quick { full.min(2) } else { full }
    }

    /// Tells whoever watches how far it is.
    fn say(&self, what: &str) {
        eprintln!("   {what}");
    }
}

/// What a part has measured, and what it could not.
#[derive(Debug, Default)]
struct Found(BTreeMap<&'static str, Result<Measured, String>>);

impl Found {
    fn put(&mut self, name: &'static str, measured: Measured) {
        self.0.insert(name, Ok(measured));
    }

    fn miss(&mut self, name: &'static str, reason: &str) {
        self.0.insert(name, Err(reason.to_owned()));
    }

    /// A measurement that may have failed by itself: the others go on.
    fn keep(&mut self, name: &'static str, measured: Result<Measured, Error>) {
        match measured {
            Ok(measured) => self.put(name, measured),
            Err(error) => self.miss(name, &error.to_string()),
        }
    }
}

/// A target that is not met is told, and no failure: the measurement went well.
pub async fn bench(args: BenchArgs) -> Result<(), Error> {
    let stop = Stop::on_signals()?;
    let hearth = args.hearth.canonicalize().map_err(Error::io(args.hearth.display().to_string()))?;
    let (parked, active, kills) = if args.quick { (5_000, 500, 1) } else { (100_000, 10_000, 10) };
    let plan = Plan { hearth, stop, quick: args.quick, parked, active, kills, million: args.million };
    let root = args.root.canonicalize().map_err(Error::io(args.root.display().to_string()))?;
    if args.growth {
        return growth::measure(&plan, &args.axis, &root).await;
    }
    if args.million {
        let (parked, opened) = if args.quick { (20_000, 1_000) } else { (1_000_000, 50_000) };
        let folder = folder(&root)?;
        return plan.stop.unless(million::measure(&plan, million::Numbers { parked, opened }, folder.path())).await;
    }
    let began = tokio::time::Instant::now();
    let found = measure(&plan, &args.only, &root).await?;
    let figures = figures(&found, &args.only);
    let last = Recorded::read(&root);
    table::print(&figures, last.as_ref());
    println!("\nmeasured in {:.0} s", began.elapsed().as_secs_f64());
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&figures)?;
        std::fs::write(path, format!("{text}\n")).map_err(Error::io(path.display().to_string()))?;
    }
    if args.only.is_empty() && !args.quick && !args.no_record {
        let recorded = Recorded::now(figures.clone());
        document::write(&root, &recorded, last.as_ref())?;
        recorded.write(&root)?;
    }
    Ok(())
}

/// Every part, each in a folder of its own that goes with it.
async fn measure(plan: &Plan, only: &[Part], root: &Path) -> Result<Found, Error> {
    let mut all = Found::default();
    for part in Part::value_variants().iter().filter(|part| only.is_empty() || only.contains(part)) {
        let folder = folder(root)?;
        let name = part.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        eprintln!("== {name}");
        let measuring = async {
            let (folder, found) = (folder.path(), &mut all);
            match part {
                Part::Embedded => Box::pin(embedded::measure(plan, folder, found)).await,
                Part::Scale => Box::pin(scale::measure(plan, folder, found)).await,
                Part::Cluster => Box::pin(cluster::measure(plan, folder, found)).await,
                Part::Sandbox => Box::pin(sandbox::measure(plan, folder, found)).await,
            }
        };
        match plan.stop.unless(measuring).await {
            Ok(()) => {}
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                eprintln!("   {name} failed: {error}");
                let missing = part.figures().iter().filter(|figure| !all.0.contains_key(**figure));
                let missing: Vec<&'static str> = missing.copied().collect();
                missing.into_iter().for_each(|figure| all.miss(figure, &error.to_string()));
            }
        }
    }
    Ok(all)
}

/// A folder on the disk that is measured. It goes with the value.
fn folder(root: &Path) -> Result<tempfile::TempDir, Error> {
    let target = root.join("target");
    std::fs::create_dir_all(&target).map_err(Error::io(target.display().to_string()))?;
    tempfile::Builder::new()
        .prefix("bench-")
        // Sessions of local sandboxes may run as another user, who has to come through.
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir_in(&target)
        .map_err(Error::io(target.display().to_string()))
}

/// In the order of the table. What was not asked for is not shown.
fn figures(found: &Found, only: &[Part]) -> Vec<Figure> {
    let asked = |kind: &&Kind| only.is_empty() || only.iter().any(|part| part.figures().contains(&kind.name));
    let figure = |kind: &Kind| match found.0.get(kind.name) {
        Some(Ok(measured)) => kind.measured(*measured),
        Some(Err(reason)) => kind.missing(reason.clone()),
        None => kind.missing("it was not measured".to_owned()),
    };
    FIGURES.iter().filter(asked).map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_belongs_to_one_part() {
        let mut names: Vec<&str> = Part::value_variants().iter().flat_map(|part| part.figures()).copied().collect();
        let mut known: Vec<&str> = FIGURES.iter().map(|kind| kind.name).collect();
        names.sort_unstable();
        known.sort_unstable();
        assert_eq!(names, known);
    }
}
