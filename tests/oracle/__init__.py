"""The truth that memory estimate and parallel sizes are tested against: what SGLang's own code holds, and refuses.

`make oracle` asks an installed release for every case below and writes the answers to tests/unit/data/.
"""
