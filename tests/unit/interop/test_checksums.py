"""XXH3-128 and BLAKE3 against values of the reference packages, at every length where an algorithm takes another way.

The values are those of xxhash 4.0.1 and blake3 1.0.11 for the bytes 0, 1, … 250, 0, 1, … of each length:

    xxhash.xxh3_128(data).hexdigest(), blake3.blake3(data).hexdigest()[:32]
"""

import hashlib

import numpy as np
import pytest

from sync_runtime.errors import DigestError, UnknownFormatError
from sync_runtime.offline.interop.checksums import BY_NAME, known, verify
from sync_runtime.offline.interop.items import U8

VALUES = [
    (0, "99aa06d3014798d86001c324468d497f", "af1349b9f5f9a1a6a0404dea36dcc949"),
    (1, "a6cd5e9392000f6ac44bdff4074eecdb", "2d3adedff11b61f14c886e35afa03673"),
    (3, "e3b55f57945a17cf5f4299fc161c9cbb", "e1be4d7a8ab5560aa4199eea339849ba"),
    (4, "eb70bf5fc779e9e6a6111d53e80a3db5", "f30f5ab28fe047904037f77b6da4fea1"),
    (8, "e1e4432a62217fe4cfd50c61c8bb98c1", "2351207d04fc16ade43ccab08600939c"),
    (9, "16c769d83e4aebce907931979dca3746", "a0fc27e5d7318b723207637bdeeba4f7"),
    (16, "72950631827607e2842812cc870dcae2", "a6a492965517a830cb75fdb713465aa4"),
    (17, "685bc458b37d057fc06e233df7729217", "8462aa7be93b09fda7b93cf9f9cddb70"),
    (32, "25e7c9b3424ceed2457d9566b6fcd697", "e528e95798037df410543d9f31e396ec"),
    (33, "02175c3aabb00637e08d84951339de86", "4f4e6c1dffd3a6c9959876d15aa96b5f"),
    (64, "9c6e140a465545e590c1971ddb04ce74", "4eed7141ea4a5cd4b788606bd23f46e2"),
    (65, "ebedf05eeadc28f11aee64a1615de88f", "de1e5fa0be70df6d2be8fffd0e99ceaa"),
    (96, "c57556e9ccb97efa6e53ab55b4f5558b", "fd3748482969397a57dc96fa5646af44"),
    (97, "9b09227e063da5a25b3284a61f91e97d", "8a06220caed39c22d8889b73351488d6"),
    (128, "14792fc3af88dc6c05321a0b64d67b41", "f17e570564b26578c33bb7f44643f539"),
    (129, "dd5e74ac6b45f54ebc30b63382b09a3b", "683aaae9f3c5ba37eaaf072aed0f9e30"),
    (160, "4e95c1cd6dc7bb85c67fcd13c31b09f4", "4eeaf67454f501a707152e7ce8009b3f"),
    (161, "90805aa22c17b7a036ade0cea58f8377", "681f740f1059dfd51455c7f7f0c1745d"),
    (192, "10c987dc285c756b050f429c4f52b688", "4abc5d2328fb4acc549aff4b877df00b"),
    (239, "9843ab31a06be0dffe21374628fcc539", "1f91ca9b6d63155d9b4f4a21aa1ebdde"),
    (240, "65b5be86da5540e7c92b68e16f83bbb6", "45e1a0dc23dbe51733d7269a3c0f519c"),
    (241, "1da1cb61bcb8a2a102e8cd95421c6d02", "749b36ae651c22e8567db692a6876e0c"),
    (256, "96c36c85d00e5bc544f5d90dacde463a", "f462b63aae56ed9fb899ad8eb93aa35d"),
    (1023, "4325711b0ed4d742d3d91d80ac495685", "10108970eeda3eb932baac1428c7a216"),
    (1024, "d0ac1f7b93bf57b9e5d78bafa45b2aa5", "42214739f095a406f3fc83deb889744a"),
    (1025, "2882ebca04ec915ce95c42288f28186e", "d00278ae47eb27b34faecf67b4fe263f"),
    (1088, "295519bc52981c5c1a848d807034c403", "34cb29f8331fab983df7f8d4c17846a1"),
    (2048, "a5141efedfefc1af25339063db861586", "e776b6028c7cd22a4d0ba182a8bf6220"),
    (2049, "39a54bc93f74921b6c9600c0e506e2ae", "5f4d72f40d7a5f82b15ca2b2e44b1de3"),
    (3072, "6ad7706834262fbe4adb90b35034df6b", "b98cb0ff3623be03326b373de6b90952"),
    (5000, "b92ec02c39d33ce7b418500fc42320ee", "ee78d92070de3df1c57c37002abf0a6b"),
    (65536, "f5e7bc5d3d8675bfaaae63800707a868", "68d647e619a930e7b1082f74f334b0c6"),
    (4194305, "f41bf15d0fc6b458101c2cdd9b96e8e8", "0460893a0170917e0d568bb27c028798"),
]


def counted(size: int) -> U8:
    return np.resize(np.arange(251, dtype=np.uint8), size)


@pytest.mark.parametrize(("size", "xxh3", "blake3"), VALUES, ids=[str(row[0]) for row in VALUES])
def test_checksums_are_those_of_the_reference_packages(size: int, xxh3: str, blake3: str) -> None:
    assert BY_NAME["xxh3-128"](counted(size)) == xxh3
    assert BY_NAME["blake3"](counted(size))[:32] == blake3


def test_checksums_do_not_depend_on_where_bytes_lie_in_memory() -> None:
    shifted = np.concatenate([np.zeros(3, np.uint8), counted(5000)])[3:]
    for checksum in BY_NAME.values():
        assert checksum(shifted) == checksum(counted(5000))


def test_a_wrong_checksum_names_the_tensor() -> None:
    data = counted(100)
    verify("sha256", data, hashlib.sha256(data.data).hexdigest(), "w")
    with pytest.raises(DigestError, match="'w'"):
        verify("sha256", data, "0" * 64, "w")
    with pytest.raises(UnknownFormatError, match="crc32"):
        known("crc32", ("sha256",), "a file")
