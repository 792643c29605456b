"""The truth that the memory estimate is tested against: what SGLang's own code holds on each rank.

`make oracle` asks an installed release for every case below and writes the answers to tests/unit/data/.
"""
