"""schemathesis makes requests from the OpenAPI description; what comes back must be in it."""

from contextlib import suppress

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

pytestmark = pytest.mark.slow

load_all_checks()
# A text that the description allows need not be a question that makes sense.
NOT_CHECKED = CHECKS.get_by_names(["positive_data_acceptance"])
BOUNDED = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_what_comes_back_is_described(mode, of_run):
    schema = schemathesis.openapi.from_url(f"{of_run.base_url}/openapi.json")
    statuses = set()
    for found in schema.get_all_operations():

        @given(case=found.ok().as_strategy(generation_mode=mode))
        @BOUNDED
        def ask(case):
            response = case.call()
            statuses.add(response.status_code)
            case.validate_response(response, excluded_checks=NOT_CHECKED)

        with suppress(Unsatisfiable):  # what takes no arguments has no wrong ones
            ask()
    assert statuses <= {200, 400, 404, 405, 415, 422}
    assert len(statuses) > 2
