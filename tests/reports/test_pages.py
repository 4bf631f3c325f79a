from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.results.pages import breakable, embed_json, page_templates, template_text


@settings(deadline=None, max_examples=100)
@given(st.recursive(st.text() | st.integers() | st.none(), lambda c: st.lists(c), max_leaves=8))
def test_embedded_json_cannot_leave_its_element(value):
    text = embed_json(value)
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == value


def test_long_names_may_be_broken_between_their_words_and_stay_text():
    assert breakable("nvjet_sm90_tst") == "nvjet_<wbr>sm90_<wbr>tst"
    assert breakable("at::native<int, 4>(x)") == "at::<wbr>native&lt;<wbr>int, 4&gt;(<wbr>x)"
    assert breakable("<script>") == "&lt;<wbr>script&gt;"
    assert breakable("__x_") == "__<wbr>x_"


@pytest.mark.parametrize("name", ["matmul", "plain words", ""])
def test_names_without_parts_are_left_alone(name):
    assert breakable(name) == name


def test_templates_escape_what_they_are_given():
    templates = page_templates()
    assert templates.from_string("{{ x }}").render(x="<b>") == "&lt;b&gt;"
    assert "{{" not in template_text(templates, "timeline.js").replace("${", "")
