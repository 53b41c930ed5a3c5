//! An override of what a run and its descendants open as their sandbox.

use std::collections::VecDeque;

use hearth_engine::check_override;
use hearth_types::{Fault, FaultCode, Isolation, RunId, SandboxScope, SandboxSpec};
use serde::{Deserialize, Serialize};

use crate::{Caller, Hearth, check};

/// What an override may say. Network and limits are not for it to say: they could only be narrowed where the
/// session is, and are narrowed by the definition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxOverride {
    pub scope: Option<SandboxScope>,
    pub image: Option<String>,
    pub workspace: Option<String>,
    pub isolation: Option<Isolation>,
    pub read_only: Option<bool>,
}

/// The override of a run as it stands now; it counts from the next `sandbox_open` on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OverrideView {
    pub run_id: RunId,
    pub sandbox: Option<SandboxSpec>,
}

impl SandboxOverride {
    fn into_spec(self) -> Result<SandboxSpec, Fault> {
        if self == Self::default() {
            return Err(Fault::new(
                FaultCode::InvalidArgument,
                "the override is empty; set `scope`, `image`, `workspace`, `isolation` or `read_only`, or delete it",
            ));
        }
        check::image("image", self.image.as_deref())?;
        check::workspace("workspace", self.workspace.as_deref())?;
        let Self { scope, image, workspace, isolation, read_only } = self;
        Ok(SandboxSpec { scope, isolation, image, workspace, read_only, ..SandboxSpec::default() })
    }
}

impl Hearth {
    /// Sets the override of a run, or takes it back. Sessions that are open stay as they are; the run and its
    /// descendants open anew.
    pub async fn override_sandbox(
        &self,
        caller: &Caller,
        run: &str,
        asked: Option<SandboxOverride>,
    ) -> Result<OverrideView, Fault> {
        let head = self.run_for(caller, run).await?;
        let sandbox = asked.map(SandboxOverride::into_spec).transpose()?;
        let run_id = head.run_id;
        if let Some(spec) = &sandbox {
            let (run, _) = self.residents().look(&run_id).await?;
            let above = self.overrides_of(run.spec.parent.as_ref().map(|parent| parent.run_id.clone())).await?;
            check_override(&run.spec, &above, spec)?;
        }
        self.residents().override_sandbox(&run_id, sandbox.clone()).await?;
        self.forget_sandboxes_below(&run_id).await?;
        Ok(OverrideView { run_id, sandbox })
    }

    /// A repeat of the override does this again, so that what a crash left undone is done then.
    async fn forget_sandboxes_below(&self, run_id: &RunId) -> Result<(), Fault> {
        let mut parents = VecDeque::from([run_id.clone()]);
        while let Some(parent) = parents.pop_front() {
            let (run, _) = self.residents().look(&parent).await?;
            for (child, opened) in run.live_children() {
                if opened.unconfirmed.is_some() {
                    continue;
                }
                self.residents().forget_sandbox(child).await?;
                parents.push_back(child.clone());
            }
        }
        Ok(())
    }

    /// The overrides of a run and its ancestors, the outermost first.
    pub(crate) async fn overrides_of(&self, run: Option<RunId>) -> Result<Vec<SandboxSpec>, Fault> {
        let mut next = run;
        let mut overrides = Vec::new();
        while let Some(run_id) = next {
            let (run, _) = self.residents().look(&run_id).await?;
            overrides.extend(run.sandbox_override.clone());
            next = run.spec.parent.as_ref().map(|parent| parent.run_id.clone());
        }
        overrides.reverse();
        Ok(overrides)
    }
}
