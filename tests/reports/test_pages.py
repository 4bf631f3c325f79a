from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.results.pages import embed_json, page_templates, template_text


@settings(deadline=None, max_examples=100)
@given(st.recursive(st.text() | st.integers() | st.none(), lambda c: st.lists(c), max_leaves=8))
def test_embedded_json_cannot_leave_its_element(value):
    text = embed_json(value)
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == value


def test_templates_escape_what_they_are_given():
    templates = page_templates()
    assert templates.from_string("{{ x }}").render(x="<b>") == "&lt;b&gt;"
    assert "{{" not in template_text(templates, "timeline.js").replace("${", "")
