//! The command line as a whole. Each command's arguments stand with the command.

use clap::{Parser, Subcommand};

use crate::cluster;
use crate::commands::{
    agents, completion, end, journal, list, nodes, replicas, resident, run, sandbox, show, skills, snapshot, tail,
};
use crate::demo;
use crate::dev;
use crate::doctor;
use crate::node;
use crate::replica;

const LONG_ABOUT: &str = "\
Hearth keeps AI sub-agents resident and their sandboxes warm.

Open a child once, then send it work for hours: the conversation, the container and the build cache
are still there each time, and still there after the server was killed.";

const EXIT_CODES: &str = "\
Exit codes:
  0    done; also when your own --timeout passed first (the state is `running` then)
  1    the turn ended otherwise than `finished` (failed, cancelled, blocked, rejected, closed),
       or the command failed
  2    usage: an argument is wrong, here or for the server (invalid_argument)
  3    the server cannot be reached
  130  interrupted with Ctrl-C; the turn goes on without you

Environment:
  HEARTH_URL    base URL of any replica [default: http://127.0.0.1:7420]
  HEARTH_TOKEN  bearer token
  NO_COLOR      no colour, even on a terminal

Try it:
  hearth demo                          the whole story, in under a minute
  hearth dev                           a server to play with; prints its token
  hearth open mock 'hello'             a resident; its id is in the answer
  hearth send run_… 'hello again'";

#[derive(Debug, Parser)]
#[command(name = "hearth", version, about = "Resident sub-agents in warm sandboxes", long_about = LONG_ABOUT)]
#[command(after_help = "`hearth --help` explains more", after_long_help = EXIT_CODES)]
#[command(max_term_width = 110)]
pub struct Cli {
    /// Machine output: one JSON document on stdout, errors as JSON on stderr
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Demo(demo::DemoArgs),
    Dev(dev::DevArgs),
    Replica(replica::ReplicaArgs),
    Node(node::NodeArgs),
    Cluster(cluster::ClusterArgs),
    Run(run::RunArgs),
    Message(run::MessageArgs),
    Open(resident::OpenArgs),
    Send(resident::SendArgs),
    Poll(resident::PollArgs),
    Input(run::InputArgs),
    Cancel(end::CancelArgs),
    Close(end::CloseArgs),
    Ls(list::LsArgs),
    Show(show::ShowArgs),
    Tail(tail::TailArgs),
    Transcript(show::TranscriptArgs),
    Agents(agents::AgentsArgs),
    Skills(skills::SkillsArgs),
    Sandbox(sandbox::SandboxArgs),
    Snapshot(snapshot::SnapshotArgs),
    Nodes(nodes::NodesArgs),
    Replicas(replicas::ReplicasArgs),
    Doctor(doctor::DoctorArgs),
    Journal(journal::JournalArgs),
    Completion(completion::CompletionArgs),
    /// Run programs of code agents for a replica
    #[command(name = hearth_control_plane::wiring::CODE_WORKER, hide = true, after_long_help = "`hearth dev` and `hearth replica` start it")]
    CodeWorker,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        fn check(command: &clap::Command) {
            for sub in command.get_subcommands() {
                let help = sub.get_after_long_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("hearth "), "`{}` has no example", sub.get_name());
                assert!(sub.get_about().is_some(), "`{}` does not say what it is for", sub.get_name());
                check(sub);
            }
        }
        check(&Cli::command());
    }

    #[test]
    fn json_is_taken_before_and_after_the_command() {
        for line in [["hearth", "--json", "ls"], ["hearth", "ls", "--json"]] {
            assert!(Cli::try_parse_from(line).unwrap().json);
        }
    }

    #[test]
    fn a_prompt_is_needed_and_only_one() {
        let parse = |line: &[&str]| Cli::try_parse_from(line).map(|_| ());
        assert!(parse(&["hearth", "send", "run_1"]).is_err());
        assert!(parse(&["hearth", "send", "run_1", "x", "--file", "y"]).is_err());
        assert!(parse(&["hearth", "send", "run_1", "-"]).is_ok());
        assert!(parse(&["hearth", "run", "mock", "--file", "y"]).is_ok());
    }
}
