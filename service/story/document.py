"""The document of a story."""

from __future__ import annotations

from warpsmith.kernels_db.store.tables import SearchRow
from warpsmith.service.documents.searches import StoryDocument, StorySection
from warpsmith.service.story import Story
from warpsmith.service.views.rows import make_document


def make_story_document(search: SearchRow, story: Story) -> StoryDocument:
    """Render a story as a document."""
    title, sections = story.plain()
    return StoryDocument(
        search_id=search.id,
        state=search.state,
        title=title,
        sections=[make_document(StorySection, section) for section in sections],
        text=story.text(),
        markdown=story.markdown(),
    )
