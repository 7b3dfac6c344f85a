"""LangChain's standard tests of a sandbox, with langchain-e2b."""

from collections.abc import Iterator

import pytest
from deepagents.backends.protocol import SandboxBackendProtocol
from e2b import Sandbox
from langchain_e2b import AsyncE2BSandbox, E2BSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests


class TestE2B(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self) -> Iterator[SandboxBackendProtocol]:
        sandbox = Sandbox.create(timeout=600)
        yield E2BSandbox(sandbox=sandbox)
        sandbox.kill()
