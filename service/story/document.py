"""Build the document of a story."""

from __future__ import annotations

from warpsmith.kernels_db.store.tables import SearchRow
from warpsmith.service.documents import searches as documents
from warpsmith.service.story import Story
from warpsmith.service.views.rows import document_of


def story_document(search: SearchRow, story: Story) -> documents.StoryDocument:
    """A story, rendered."""
    title, sections = story.plain()
    return documents.StoryDocument(
        search_id=search.id,
        state=search.state,
        title=title,
        sections=[document_of(documents.StorySection, section) for section in sections],
        text=story.text(),
        markdown=story.markdown(),
    )
