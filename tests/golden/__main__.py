"""Write the golden files anew."""

from __future__ import annotations

from tests.golden import DIRECTORY, shown
from tests.support import prompt_scenarios, prompt_scenarios_gpu, story_scenarios
from warpsmith.service.story import tell
from warpsmith.workers.llm.prompt.requests import build

for stale in DIRECTORY.glob("*.md"):
    stale.unlink()
for name, context in (prompt_scenarios.scenarios() | prompt_scenarios_gpu.scenarios()).items():
    (DIRECTORY / f"{name}.md").write_text(shown(build(context)), encoding="utf-8")
stories = DIRECTORY / "stories"
for stale in stories.glob("*.txt"):
    stale.unlink()
for name, facts in story_scenarios.scenarios().items():
    (stories / f"{name}.txt").write_text(tell(facts).text(), encoding="utf-8")
