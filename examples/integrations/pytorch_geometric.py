"""PyTorch Geometric's graph networks: graphs of other sizes at each step, beside eager.

python examples/integrations/pytorch_geometric.py
"""

from __future__ import annotations

import copy

import torch
from torch.nn import functional as F
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, global_mean_pool

import thunder


class GraphClassifier(torch.nn.Module):
    """Three kinds of convolutions over edges, and the mean of each graph."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = torch.nn.ModuleList([GCNConv(8, 16), SAGEConv(16, 16), GATConv(16, 8, heads=2)])
        self.classify = torch.nn.Linear(16, 3)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, graph: torch.Tensor, graphs: int) -> torch.Tensor:
        for convolution in self.convolutions:
            x = F.relu(convolution(x, edges))
        return self.classify(global_mean_pool(x, graph, size=graphs))


def batches(count: int) -> list[Batch]:
    """Return batches of four random graphs: other numbers of nodes and edges in each."""
    generator = torch.Generator().manual_seed(1)

    def graph() -> Data:
        nodes, edges = torch.randint(4, 20, (2,), generator=generator).tolist()
        return Data(
            x=torch.randn(nodes, 8, generator=generator),
            edge_index=torch.randint(0, nodes, (2, edges), generator=generator),
            y=torch.randint(0, 3, (1,), generator=generator),
        )

    return [Batch.from_data_list([graph() for _ in range(4)]) for _ in range(count)]


def train(model: torch.nn.Module, steps: list[Batch]) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for batch in steps:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch.x, batch.edge_index, batch.batch, batch.num_graphs), batch.y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    plain = GraphClassifier()
    compiled = thunder.jit(copy.deepcopy(plain))
    steps = batches(12)
    losses = train(plain, steps), train(compiled, steps)
    print("losses, eager and compiled:", losses[0][-1], losses[1][-1])
    print("calls traced:", thunder.cache_misses(compiled), "of", thunder.compile_stats(compiled).calls)
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-4)
