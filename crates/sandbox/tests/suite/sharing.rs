//! Who gets which session, and who may see it.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use futures::future::join_all;
use hearth_sandbox::{Caller, Needs, OpenArgs, ReadArgs, Sandboxes as _, SessionArgs};
use hearth_types::{Isolation, RunId, SandboxId};

use super::bench::{Bench, Place, caller, code, command, run};

pub async fn a_tree_shares_one_session_per_workspace(place: Place) {
    let bench = Bench::new(place).await;
    let (parent, child) = (bench.hand(run("run_root", "run_root")), bench.hand(run("run_root", "run_child")));
    let opens = join_all((0..6).map(|index| if index % 2 == 0 { parent.open() } else { child.open() })).await;
    let ids: BTreeSet<SandboxId> = opens.iter().map(|opened| opened.session_id.clone()).collect();
    assert_eq!(ids.len(), 1, "the same open at once is one session");
    assert_eq!(opens.iter().filter(|opened| !opened.warm).count(), 1, "and one of them made it");
    let shared = opens[0].session_id.clone();
    parent.sh(&shared, "echo mine > f").await;
    assert_eq!(child.sh(&shared, "cat f").await.output, "mine\n");

    let durable = child.workspace("build").await;
    assert!(!durable.warm && durable.session_id != shared);
    assert!(parent.workspace("build").await.warm);
    let own = child.try_open(OpenArgs { own: Some(true), ..OpenArgs::default() }).await.unwrap();
    assert!(!own.warm && own.session_id != shared);
    let other = bench.hand(run("run_other", "run_other")).open().await;
    assert!(!other.warm && other.session_id != shared);
    bench.finish().await;
}

pub async fn a_shared_session_is_not_passed_off_as_another(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(run("run_root", "run_root"));
    let opened = hand.open().await;
    let same = OpenArgs { mem_mb: opened.limits.mem_mb, isolation: Some(opened.isolation), ..OpenArgs::default() };
    assert!(hand.try_open(same).await.unwrap().warm);
    let smaller = OpenArgs { mem_mb: Some(256), ..OpenArgs::default() };
    assert_eq!(code(hand.try_open(smaller).await), "conflict");
    bench.finish().await;
}

/// The same call, asked again after a crash, finds what it opened before.
pub async fn an_open_repeated_by_its_call_is_one_session(place: Place) {
    let mut bench = Bench::new(place).await;
    let call = || Caller { call: Some("call_1".into()), ..run("run_root", "run_root") };
    let own = || OpenArgs { own: Some(true), ..OpenArgs::default() };
    let first = bench.hand(call()).try_open(own()).await.unwrap();
    bench.restart().await;
    let hand = bench.hand(call());
    let second = hand.try_open(own()).await.unwrap();
    assert_eq!(first.session_id, second.session_id);
    assert_eq!(first.warm, second.warm, "the same answer");
    let other = Caller { call: Some("call_2".into()), ..run("run_root", "run_root") };
    assert_ne!(bench.hand(other).try_open(own()).await.unwrap().session_id, first.session_id);
    hand.close(&first.session_id).await.unwrap();
    assert_ne!(hand.try_open(own()).await.unwrap().session_id, first.session_id);
    bench.finish().await;
}

/// T16
pub async fn t16_another_tenants_session_does_not_exist(place: Place) {
    let bench = Bench::new(place).await;
    let owner = bench.hand(run("run_root", "run_root"));
    let session = owner.open().await.session_id;
    owner.write(&session, "f", "mine").await.unwrap();
    let unknown = SandboxId::generate();
    let strangers = [
        Caller { principal: "beta".into(), ..run("run_root", "run_root") },
        caller("beta"),
        run("run_other", "run_other"),
    ];
    for stranger in strangers {
        let hand = bench.hand(stranger);
        let node = hand.node;
        assert!(hand.listed().await.is_empty());
        assert_eq!(hand.try_exec(command(&session, "true")).await, hand.try_exec(command(&unknown, "true")).await);
        assert_eq!(hand.read(&session, "f").await, hand.read(&unknown, "f").await);
        assert_eq!(hand.write(&session, "f", "x").await, hand.write(&unknown, "f", "x").await);
        assert_eq!(hand.close(&session).await, hand.close(&unknown).await);
        let touch = |id: &SandboxId| node.touch(&hand.caller, SessionArgs { session_id: id.clone() });
        assert_eq!(touch(&session).await, touch(&unknown).await);
        assert_eq!(code(hand.read(&session, "f").await), "not_found");
    }
    let foreign = Caller { principal: "beta".into(), ..Caller::default() };
    let closed = bench.node().close_run(&foreign, &RunId::parse("run_root").unwrap(), false).await.unwrap();
    assert_eq!(closed.closed, 0);
    assert_eq!(owner.read(&session, "f").await.unwrap().content, "mine");
    bench.finish().await;
}

pub async fn a_caller_without_a_tenant_opens_nothing(place: Place) {
    let bench = Bench::new(place).await;
    for principal in ["", "../x", "a b"] {
        let fault = bench.hand(caller(principal)).try_open(OpenArgs::default()).await.unwrap_err();
        assert_eq!(fault.code.as_str(), "permission_denied");
    }
    bench.finish().await;
}

/// T15
pub async fn t15_what_is_refused_leaves_nothing_half_open(place: Place) {
    let bench = Bench::with(place, |options| options.max_sessions = NonZeroUsize::MIN).await;
    let hand = bench.hand(caller("acme"));
    let refused = [
        (OpenArgs { network: Some("egress".into()), ..OpenArgs::default() }, "tool_refused"),
        (OpenArgs { mem_mb: Some(1 << 20), ..OpenArgs::default() }, "tool_refused"),
        (
            OpenArgs { isolation: Some(Isolation::L3), runtime: Some("kata".into()), ..OpenArgs::default() },
            "isolation_unavailable",
        ),
        (OpenArgs { cpu: Some(-1.0), ..OpenArgs::default() }, "invalid_argument"),
        (OpenArgs { workspace: Some("../x".into()), ..OpenArgs::default() }, "invalid_argument"),
    ];
    for (args, expected) in refused {
        assert_eq!(code(hand.try_open(args.clone()).await), expected, "{args:?}");
    }
    assert!(hand.listed().await.is_empty());
    let opened = hand.open().await;
    let fault = hand.try_open(OpenArgs::default()).await.unwrap_err();
    assert_eq!(fault.code.as_str(), "quota_exceeded");
    assert!(fault.retry_after_ms.is_some());
    hand.close(&opened.session_id).await.unwrap();
    let next = hand.open().await;
    let args = ReadArgs {
        session_id: next.session_id.clone(),
        path: "none".into(),
        encoding: None,
        offset: None,
        max_bytes: None,
    };
    assert_eq!(code(hand.node.read(&hand.caller, args).await), "not_found");
    bench.finish().await;
}

/// What a run may not have it does not get by the id of a session that another run of its tree has opened.
pub async fn a_session_that_is_looser_than_the_run_allows_is_refused_by_its_id_too(place: Place) {
    let bench = Bench::new(place).await;
    let parent = bench.hand(run("run_root", "run_root"));
    let shared = parent.workspace("code").await.session_id;
    let own = parent.try_open(OpenArgs { own: Some(true), ..OpenArgs::default() }).await.unwrap().session_id;
    let child = |needs: Needs| bench.hand(Caller { needs, ..run("run_root", "run_child") });
    let free = child(Needs::default());
    free.sh(&shared, "true").await;
    assert_eq!(code(free.try_exec(command(&own, "true")).await), "not_found", "it is its parent's own");
    assert!(!free.listed().await.contains(&own));
    for needs in [
        Needs { read_only: true, ..Needs::default() },
        Needs { own: true, ..Needs::default() },
        Needs { isolation: Some(Isolation::L3), ..Needs::default() },
    ] {
        let hand = child(needs);
        assert_eq!(code(hand.try_exec(command(&shared, "true")).await), "tool_refused", "{needs:?}");
        assert_eq!(code(hand.write(&shared, "f", "x").await), "tool_refused", "{needs:?}");
    }
    let apart = child(Needs { own: true, ..Needs::default() });
    let args = OpenArgs { own: Some(true), ..OpenArgs::default() };
    let session = apart.try_open(args).await.unwrap().session_id;
    apart.sh(&session, "true").await;
    let quiet = child(Needs { no_network: true, ..Needs::default() });
    quiet.sh(&shared, "true").await;
    bench.finish().await;
}
