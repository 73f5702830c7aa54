"""Regions, addresses, links: read from text, refused with a sentence, kept through JSON."""

from __future__ import annotations

import dataclasses
import ipaddress
import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.devcluster.config import MAX_REGIONS, ClusterConfig, Level, Region, parse_link, parse_regions
from tools.errors import ClusterError
from tools.linkemu import GATEWAY_ADDRESS

ALL = parse_regions(str(MAX_REGIONS))


def _config(**changes: object) -> ClusterConfig:
    plain = ClusterConfig(directory=Path("/d"), level=Level.NODES, regions=parse_regions("2"))
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


def test_a_number_takes_the_usual_names() -> None:
    assert [region.name for region in parse_regions("3")] == ["us-east", "eu-west", "ap-south"]
    assert [region.index for region in parse_regions("3")] == [1, 2, 3]


def test_names_are_taken_as_they_are() -> None:
    assert parse_regions("b,a") == (Region("b", 1), Region("a", 2))


def test_the_most_regions_have_names_that_differ() -> None:
    assert len({region.name for region in ALL}) == MAX_REGIONS


@pytest.mark.parametrize("text", ["0", "33", "999999999"])
def test_a_number_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(ClusterError, match=f"1 to {MAX_REGIONS} regions, not {text}"):
        parse_regions(text)


@pytest.mark.parametrize("text", ["", "a,", "A", "-a", "a-", "a b", "a/b", "..", "²", "9" * 5000, "a" * 41, "1a"])
def test_what_is_not_a_name_is_refused(text: str) -> None:
    with pytest.raises(ClusterError, match="is not a region name"):
        parse_regions(text)


def test_a_name_twice_is_refused() -> None:
    with pytest.raises(ClusterError, match="Region names must differ"):
        parse_regions("a,b,a")


@pytest.mark.parametrize("name", ["logs", "pid", "lock", "kubectl-home"])
def test_a_name_that_the_folder_needs_itself_is_refused(name: str) -> None:
    with pytest.raises(ClusterError, match=f"cannot be called {name}"):
        parse_regions(f"a,{name}")


def _networks(region: Region) -> list[ipaddress.IPv4Network]:
    single = [f"{region.node_ip}/32", f"{region.management_ip}/32"]
    ranges = [region.pod_cidr, region.load_balancer_cidr, region.service_cidr, region.kwok_cidr]
    return [ipaddress.IPv4Network(text) for text in (*single, *ranges)]


def test_no_two_networks_of_all_regions_overlap_and_all_are_private() -> None:
    networks = [network for region in ALL for network in _networks(region)]
    networks.append(ipaddress.IPv4Network(f"{GATEWAY_ADDRESS}/32"))
    networks.append(ipaddress.IPv4Network("10.230.0.1/32"))  # the bubble's own end of the management network
    assert all(network.is_private for network in networks)
    assert [(a, b) for a, b in itertools.combinations(networks, 2) if a.overlaps(b)] == []


def test_hardware_addresses_differ_and_are_locally_administered() -> None:
    macs = {region.mac for region in ALL}
    assert len(macs) == MAX_REGIONS
    assert all(int(mac.split(":")[0], 16) & 0b11 == 0b10 for mac in macs)


def test_the_api_servers_address_is_the_first_of_the_services() -> None:
    for region in ALL:
        assert ipaddress.ip_address(region.service_ip) == next(ipaddress.ip_network(region.service_cidr).hosts())


def test_a_link_is_two_regions_and_a_shape() -> None:
    regions = parse_regions("us-east,eu-west")
    assert parse_link("us-east:eu-west=100ms/500M/0.1%", regions) == ("us-east", "eu-west", "100ms/500M/0.1%")
    assert parse_link("*:*=10ms/1G", regions) == ("*", "*", "10ms/1G")


@pytest.mark.parametrize(
    "text", ["", "us-east", "us-east:eu-west", "us-east=1ms", "us-east:eu-west=", ":=x", "a:b:c=x"]
)
def test_what_is_not_a_link_is_answered_with_the_form(text: str) -> None:
    with pytest.raises(ClusterError, match="is not a link: write REGION:REGION=RTT/RATE/LOSS"):
        parse_link(text, parse_regions("2"))


def test_a_link_to_an_unknown_region_names_it() -> None:
    with pytest.raises(ClusterError, match="names 'mars', which is not a region here"):
        parse_link("us-east:mars=1ms", parse_regions("2"))


def test_a_link_from_a_region_to_itself_is_refused() -> None:
    with pytest.raises(ClusterError, match="from a region to itself"):
        parse_link("us-east:us-east=1ms", parse_regions("2"))


def test_links_are_refused_where_there_are_none() -> None:
    with pytest.raises(ClusterError, match="levels nodes and limits only"):
        _config(level=Level.PLANES, links=(("*", "*", "1ms"),))


def test_fewer_than_no_nodes_are_refused() -> None:
    with pytest.raises(ClusterError, match="0 or more kwok nodes per region, not -1"):
        _config(kwok_nodes=-1)


@settings(max_examples=25, deadline=None)
@given(
    level=st.sampled_from(Level),
    names=st.lists(st.text(alphabet="abcxyz-", min_size=1, max_size=9), min_size=1, max_size=4, unique=True),
    kwok_nodes=st.integers(0, 1000),
    images=st.lists(st.text(alphabet='ab/.é "', max_size=20), max_size=2),
    directory=st.text(alphabet="abcé/ .'\"", min_size=1, max_size=30),
)
def test_a_configuration_survives_the_way_through_json(
    level: Level, names: list[str], kwok_nodes: int, images: list[str], directory: str
) -> None:
    config = ClusterConfig(
        directory=Path("/") / directory,
        level=level,
        regions=tuple(Region(name, number) for number, name in enumerate(names, 1)),
        kube="1.36",
        kwok_nodes=kwok_nodes,
        links=() if level is Level.PLANES else (("*", "*", "10ms/1G/0%"),),
        images=tuple(images),
    )
    assert ClusterConfig.from_json(config.to_json()) == config


def test_an_unknown_region_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ClusterError, match="no region 'mars' here; the regions are us-east, eu-west"):
        _config().region("mars")


def test_clusters_in_two_folders_share_no_cgroup() -> None:
    region = parse_regions("1")[0]
    first, second = _config(directory=Path("/a")).cgroup(region), _config(directory=Path("/b")).cgroup(region)
    assert first != second
    assert first == _config(directory=Path("/a")).cgroup(region)
    assert "/" not in first
