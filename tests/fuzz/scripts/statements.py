"""The parts of scripts: templates of statements and blocks.

A line is `kind | text`: the kind of the variable that it defines, or `-`. In the text, {new} is that variable, and

{f} a tensor of floats   {i} a tensor of ints   {b} a tensor of bools   {t} any of them   {w} one that may be written to
{n} a number             {k} a small int        {d} a dtype             {o} one more variable's name
{a} an array of NumPy
"""

from __future__ import annotations

# Statements that read sizes, or do other things at other sizes, for scripts in which they change.
SIZES = """
n | {new} = {f}.shape[0]
n | {new} = len({f})
n | {new} = {f}.numel()
n | {new} = {f}.shape[-1] * 2 + {f}.size(0)
n | {new} = {f}.shape[0] // 2
n | {new} = {f}.shape[0] % 3
n | {new} = -({f}.shape[0] // -4)
n | {new} = max({f}.shape[0], 4)
n | {new} = min({f}.shape)
n | {new} = sum({f}.shape)
n | {new} = math.prod({f}.shape)
n | {new} = {f}.shape[0] / 3
n | {new} = {f}.shape[0] ** 0.5
n | {new} = {f}.stride(0)
n | {new} = {f}.shape[0] > 4
n | {new} = {f}.shape == {f}.shape
n | {new} = {f}.shape[0] == 3
n | {new} = len(f"{{{f}.shape[0]}}")
n | {new} = {{3: 1, 5: 2}}.get({f}.shape[0], 4)
n | {new} = {f}.diagonal().shape[0]
n | {new} = len({f}.split(3))
n | {new} = {f}.chunk(2)[0].shape[0]
n | {new} = int({f}.shape[0] * 0.7)
n | {new} = sum(i for i in range({f}.shape[0]))
n | {new} = divmod({f}.shape[0], 2)[1]
n | {new} = [0.5, 1.5, 2.5, 3.5][min({f}.shape[0], 3)]
f | {new} = {f}[: int({i}.max()) % 5] * 2
f | {new} = {f}[int({i}.min()) :]
f | {new} = torch.zeros(abs(int({i}.sum())) % 7) + 1
f | {new} = {f}.new_ones({f}.shape[0], abs(int({i}.max())) % 4 + 1)
n | {new} = {f}.shape[0] > abs(int({i}.max()))
f | {new} = {f}[: {f}.shape[0] // 2] * 2
f | {new} = {f}[{f}.shape[0] // 2 :]
f | {new} = {f}[-3:]
f | {new} = {f}[:4]
f | {new} = {f}[1:] - {f}[:-1]
f | {new} = {f}[::2]
f | {new} = {f}[-1] + {f}[0]
f | {new} = {f}[2]
f | {new} = {f}.t().reshape({f}.shape)
f | {new} = {f}.reshape(-1, 3)
f | {new} = {f}.reshape({f}.shape[::-1])
f | {new} = {f}.transpose(0, -1).reshape(-1)
f | {new} = {f}.view(-1)
f | {new} = {f}.t().contiguous().view(-1)
f | {new} = {f}.flatten()[: {f}.shape[0]]
f | {new} = {f}[:, :2].reshape(-1)
f | {new} = {f}.expand(2, *{f}.shape).sum(0)
f | {new} = torch.arange({f}.shape[0]) * 0.5
f | {new} = {f} * torch.arange({f}.shape[0])[:, None]
f | {new} = {f} + torch.ones({f}.shape)
f | {new} = {f}.new_zeros({f}.shape[0], 3) + {f}
f | {new} = {f}.reshape(*({f}.shape[1], {f}.shape[0]))
f | {new} = {f} * 2 if {f}.shape != {f}.mT.shape else {f}
f | {new} = F.conv1d({f}[None], {f}.mT[:2, :, None])
f | {new} = F.group_norm({f}.mT[None], 3)
f | {new} = F.glu(torch.cat([{f}, {f}]), 0)
- | functools.reduce(lambda kept, size: kept.append(size) or kept, {f}.shape, log)
f | {new} = torch.eye({f}.shape[0], 3) * {f}
f | {new} = torch.cat([{f}, {f}])
f | {new} = torch.cat([{f}.new_zeros(1, 3), {f}])[: {f}.shape[0]]
f | {new} = F.pad({f}, (0, 0, 1, 0))
f | {new} = F.pad({f}, (0, 0, 0, max(0, 8 - {f}.shape[0])))
f | {new} = {f}.chunk(2)[-1]
f | {new} = {f}.split(3)[0]
f | {new} = {f}.tensor_split(2)[1]
f | {new} = torch.stack([row * i for i, row in enumerate({f})])
f | {new} = {f}.mean(0) / max({f}.shape[0], 1)
f | {new} = {f}.var(0)
f | {new} = {f}.std(0, unbiased=False)
f | {new} = {f}.softmax(0)
f | {new} = ({f} @ {f}.mT).tril()
f | {new} = {f}.masked_fill((torch.arange({f}.shape[0]) < 2)[:, None], 0.0)
f | {new} = {f}.roll(1, 0)
f | {new} = {f}.flip(0)
f | {new} = {f}.repeat(2, 1)
f | {new} = {f}.cumsum(0)
f | {new} = {f}.sort(0).values
f | {new} = {f}.topk(2, 0).values
f | {new} = torch.cross({f}, {f})
f | {new} = {f}.diagonal() * 2
f | {new} = {f}.unfold(0, 2, 1).sum(-1)
f | {new} = F.layer_norm({f}, {f}.shape)
f | {new} = F.cross_entropy({f}, torch.arange({f}.shape[0]) % 3)
f | {new} = F.scaled_dot_product_attention({f}[None], {f}[None], {f}[None], is_causal=True)[0]
f | {new} = F.dropout({f}, 0.5) * {f}.shape[0]
f | {new} = checkpoint(lambda t: t.tanh() * t.shape[0], {f}, use_reentrant=False)
f | {new} = func.vmap(lambda t: t * t.sum())({f})
f | {new} = {f} * torch.tensor({f}.shape[0])
f | {new} = torch.full(({f}.shape[0],), {n})
f | {new} = {f}.gather(0, torch.zeros(1, 3, dtype=torch.long))
f | {new} = {f}.index_select(0, torch.arange({f}.shape[0] - 1, -1, -1))
f | {new} = torch.where(torch.arange({f}.shape[0])[:, None] % 2 == 0, {f}, -{f})
- | {w}[: {w}.shape[0] // 2] = {n}
- | {w}[-2:] *= 2
- | {w}.t().reshape({w}.shape).mul_(2)
- | {w}.reshape(-1)[::2] = {n}
- | log.append({f}.shape)
- | log.append({f}.shape[0] * 2)
- | outside.append({f}.shape[0])
"""

# topic -> lines. A script takes its lines from a few topics, so that they meet each other.
LINES: dict[str, str] = {
    "arithmetic": """
f | {new} = {f} + {f}
f | {new} = {f} * {t}
f | {new} = {f} - {n}
f | {new} = {n} * {f}
f | {new} = {f} / 4
f | {new} = torch.where({b}, {f}, {n})
f | {new} = torch.where({b}, {n}, {n})
f | {new} = torch.lerp({f}, {f}, {n})
f | {new} = ({f}.as_subclass(Noted) * {n}).as_subclass(torch.Tensor)
f | {new} = torch.add({f}.as_subclass(Noted), {f}, alpha={n}).as_subclass(torch.Tensor)
f | {new} = torch.tanh({f})
f | {new} = F.relu({f}) + {n}
f | {new} = torch.maximum({f}, {f})
f | {new} = {f}.clamp(min={n})
f | {new} = torch.softmax({f}, -1)
f | {new} = {f}.sum(-1, keepdim=True)
f | {new} = {f}.mean()
f | {new} = {f}.amax(0)
f | {new} = torch.cat([{f}.flatten(), {f}.flatten()]).sum()
f | {new} = torch.stack([{f}, {f}]).sum(0)
f | {new} = {f} @ {f}.mT
f | {new} = torch.einsum("ij,kj->ik", {f}, {f})
f | {new} = F.layer_norm({f}, {f}.shape[-1:])
f | {new} = F.linear({f}, {f})
f | {new} = F.dropout({f}, 0.5)
f | {new} = {f} + torch.rand(1)
f | {new} = {f}.exp().log1p()
f | {new} = {f}.cumsum(-1)
f | {new} = -{f}
f | {new} = abs({f})
f | {new} = {f} ** 2
f | {new} = ({f} > {n}) * {f}
i | {new} = {i} + {k}
i | {new} = {i} // 2
i | {new} = {f}.argmax(-1)
i | {new} = ({f} > 0).sum()
i | {new} = {f}.long()
i | {new} = torch.arange(3)
b | {new} = {f} > {n}
b | {new} = {f} != {f}
b | {new} = {f}.isnan() | {b}
b | {new} = ~{b}
f | {new} = {f}.to({d}) + {f}
f | {new} = {i}.float() * {f}
f | {new} = torch.zeros_like({f}) + {n}
f | {new} = torch.ones(3) * {f}.sum()
f | {new} = torch.full_like({f}, {n})
f | {new} = {f}.nan_to_num()
f | {new} = {f}.sort(-1).values
f | {new} = {f}.mul({n}).add({f}, alpha=2)
f | {new} = F.mse_loss({f}, {f})
f | {new} = F.cross_entropy({f}.flatten()[None], torch.tensor([0]))
f | {new} = torch.linalg.vector_norm({f})
""",
    "views": """
f | {new} = {f}.mT
f | {new} = {f}[None]
f | {new} = {f}[..., :1]
f | {new} = {f}[..., ::2]
f | {new} = {f}.unsqueeze(-1)
f | {new} = {f}.view(-1)
f | {new} = {f}.reshape(-1)
f | {new} = {f}.flatten()
f | {new} = {f}.expand(2, *{f}.shape)
f | {new} = {f}.contiguous()
f | {new} = {f}.squeeze()
f | {new} = {f}.diagonal()
f | {new} = {f}.select(-1, 0)
f | {new} = {f}.narrow(-1, 0, 1)
f | {new} = {f}.view_as({f})
f | {new} = {f}.as_strided({f}.shape, {f}.stride())
f | {new} = {f}.detach()
f | {new} = {f}.data
f | {new} = {f}.to(torch.float32)
f | {new} = {f}.real
f | {new} = {f}[:]
f | {new} = {f}.permute(*reversed(range({f}.dim())))
f | {new} = {f}.unbind(0)[0]
f | {new} = {f}.chunk(2, -1)[-1]
f | {new} = {f}.split(1, -1)[0]
f | {new} = {f}.movedim(0, -1)
f | {new} = {f}.unfold(-1, 1, 1)
f | {new} = {f}.float()
f | {new} = {f}.clone()
f | {new} = {f}.T.T
i | {new} = {f}.view(torch.int32)
- | {o}, {o} = {o}, {o}
f | {new} = torch.broadcast_to({f}, (2, *{f}.shape))
f | {new} = {f}.swapaxes(0, -1)
f | {new} = {f}.alias() if hasattr({f}, "alias") else {f}
f | {new} = {f}.cpu()
f | {new} = {f}.type_as({f})
""",
    "writes": """
- | {w}.add_({n})
- | {w}.mul_({f})
- | {w}[0] = {n}
- | {w}[..., 0] = {f}
- | {w}[..., :1] = {n}
- | {w}.copy_({t})
- | {w}.zero_()
- | {w}.fill_({n})
- | {w} += 1
- | {w} *= {f}
- | {w} -= {f}.mean()
- | {w}.view(-1)[0] = {n}
- | {w}.view(-1)[-1:].add_({n})
- | {w}.mT.mul_(2)
- | {w}.masked_fill_({b}, {n})
- | {w}[{b}] = {n}
- | {w}.data.mul_(2)
- | {w}.detach().add_({n})
- | {w}.clamp_(min={n})
- | {w}.tanh_()
- | {w}.t_()
- | {w}.unsqueeze_(0)
- | {w}.index_add_(0, torch.tensor([0]), {f}[:1])
- | {w}.select(-1, 0).sub_({n})
- | {w}.flatten()[:1] += {n}
- | {w}.reshape(-1)[1:] = {n}
- | {w}.exponential_() if {w}.numel() == 99 else {w}.relu_()
- | torch.add({f}, {f}, out={w})
- | torch.mul({f}, {n}, out={w})
- | torch.tanh({f}, out={w})
- | torch.sum({f}.clone(), 0, out={w})
- | {i}.add_({k})
- | {i} *= {n}
- | {i}[..., 0] = {k}
- | {b}.logical_not_()
- | {w}.squeeze_()
- | {w}.requires_grad_()
- | {w}.detach_()
- | {w}.set_({f}.detach())
- | {w}.data = {f}.detach().clone()
- | {w}.resize_(2, 2)
- | {w}.normal_()
- | {w}.uniform_(0, 1)
- | nn.init.zeros_({w})
- | torch._foreach_add_([{w}, {w}], 1)
- | {w}.put_(torch.tensor([0]), {w}.new_tensor([5.0]))
- | {w}.scatter_(-1, torch.zeros_like({w}, dtype=torch.long), {n})
- | F.relu({w}, inplace=True)
- | {w}.grad = {f}.detach().clone()
- | {w}.grad = None
f | {new} = {w}.add_({n})
f | {new} = {w}.expand(2, *{w}.shape).add_(1)
""",
    "data": """
n | {new} = {f}.sum().item()
n | {new} = {f}.max().item()
n | {new} = float({f}.mean())
n | {new} = int({i}.sum())
n | {new} = {f}.flatten().tolist()[0]
n | {new} = {n} * {n}
n | {new} = {n} + 1
n | {new} = -{n}
n | {new} = abs({n})
n | {new} = max({n}, {n})
n | {new} = {n} != {n}
n | {new} = {n} if {n} <= {n} else 1.0
n | {new} = round({n}, 1)
n | {new} = {n} // 2
n | {new} = bool({b}.any())
n | {new} = {f}.shape[0]
n | {new} = {f}.numel() + {f}.dim()
n | {new} = {f}.stride()[0]
n | {new} = {f}._version
n | {new} = {f}.storage_offset()
n | {new} = len({f})
n | {new} = torch.equal({f}, {f})
n | {new} = {f}.is_leaf + {f}.requires_grad
n | {new} = {f}.data_ptr() == {f}.data_ptr()
n | {new} = torch.allclose({f}, {f}, equal_nan=True)
n | {new} = sum(value for value in {f}.flatten().tolist() if value == value)
n | {new} = math.floor({n})
n | {new} = str({f}.dtype)
n | {new} = f"{{{n}}}"
n | {new} = min({f}.flatten().tolist(), default=0)
n | {new} = sorted({f}.flatten().tolist())[0]
n | {new} = len({{*{f}.flatten().tolist()}})
n | {new} = {i}.flatten().tolist().count(1)
n | {new} = hash({n} or 0) % 7 if {n} == {n} else 5
n | {new} = {n} == {n} or {n} > {n}
f | {new} = {f}[{b}]
f | {new} = {f}.flatten()[{f}.flatten() > {n}]
i | {new} = {b}.nonzero()
i | {new} = torch.unique({i})
f | {new} = {f}.flatten()[{i}.flatten() % max({f}.numel(), 1)]
f | {new} = torch.tensor({f}.flatten().tolist())
f | {new} = torch.tensor([{n}, {n}])
f | {new} = torch.tensor([{f}.sum(), {n}])
f | {new} = torch.as_tensor({f}.detach().numpy())
f | {new} = torch.from_numpy({f}.detach().numpy() * 2)
f | {new} = {f} * {f}.detach().numpy().sum()
f | {new} = {f}.masked_select({b})
f | {new} = {f}.repeat_interleave({k}, 0)
f | {new} = {f}.new_tensor([{n}, 1.0])
f | {new} = {f}.new_full((2,), {n})
f | {new} = torch.full((2,), {n})
f | {new} = {f}[{k} - 1]
f | {new} = {f} * {n} if {n} else {f}
- | {f}.detach().numpy()[..., 0] = {n}
- | assert {f}.sum() == {f}.sum(), "user: nan"
""",
    "arrays": """
a | {new} = {f}.detach().numpy()
a | {new} = {f}.numpy(force=True)
a | {new} = np.asarray({f}.detach())
a | {new} = {a}.T
a | {new} = {a}[..., ::-1]
a | {new} = {a}[::2]
a | {new} = {a}[:1].T
a | {new} = {a}.reshape(-1)
a | {new} = {a}.ravel()[1:]
a | {new} = {a}[None].squeeze()
a | {new} = {a}.view(np.int32)
a | {new} = np.swapaxes({a}, 0, -1)
a | {new} = np.broadcast_to({a}, (2, *{a}.shape))
a | {new} = np.lib.stride_tricks.sliding_window_view({a}, 1, -1)
a | {new} = np.atleast_2d({a})
a | {new} = np.ascontiguousarray({a})
a | {new} = np.split({a}, {a}.shape[-1], -1)[0]
a | {new} = {a}.copy()
a | {new} = {a} * {n}
a | {new} = {a} + {a}
a | {new} = {a}.astype(np.float64)
a | {new} = np.where({a} > {n}, {a}, {n})
a | {new} = np.concatenate([{a}.ravel(), {a}.ravel()])
a | {new} = {a}[{a} > {n}]
a | {new} = np.sort({a}, axis=-1)
f | {new} = torch.from_numpy({a})
f | {new} = torch.from_numpy({a}.copy()) * {n}
f | {new} = torch.as_tensor({a})
f | {new} = torch.tensor({a}) + 1
f | {new} = {f} * torch.from_numpy({a}).sum()
f | {new} = {f} + {a}.sum()
f | {new} = {f}.new_tensor({a})
n | {new} = {a}.shape
n | {new} = {a}.strides[0]
n | {new} = {a}.flags.writeable
n | {new} = {a}.sum()
n | {new} = float({a}.max())
n | {new} = {a}.base is None
n | {new} = np.shares_memory({a}, {a})
n | {new} = bool(({a} > 0).all())
n | {new} = {a}.tolist()
n | {new} = {a}.dtype.name
- | {a}[...] = {n}
- | {a}[..., 0] += 1
- | {a} *= 2
- | {a}.fill({n})
- | {a}.sort()
- | {a}.T[:1] = {n}
- | np.add({a}, 1, out={a})
- | np.copyto({a}, {n})
- | np.negative({a}, {a})
- | {a}.flat[0] = {n}
- | {a}.resize({a}.shape)
- | {w}.detach().copy_(torch.from_numpy({a}))
- | {w}.detach().add_(1)
- | outside.append({a})
- | log.append({a})
- | for cell in np.nditer({a}, op_flags=["readwrite"]): cell[...] = {n}
""",
    "hooks": """
- | x.register_hook(lambda g: outside.append(g.sum().item()))
- | x.register_hook(lambda g: None)
- | x.register_hook(lambda g: g * {n})
- | x.register_hook(lambda g: torch.zeros_like(g))
- | x.register_hook(lambda g: g.detach().mul_(2))
- | {f}.register_hook(lambda g: g + {f}.detach().sum())
- | {f}.register_hook(lambda g: outside.append(len(outside)))
- | {f}.register_hook(lambda g: box_of(g).value * {n})
- | {f}.register_hook(lambda g: g[:1] if {n} == 99 else g)
- | {f}.register_hook(functools.partial(torch.mul, other={n}))
- | {f}.register_hook(torch.sin)
- | {f}.register_hook(outside.append)
- | {f}.register_hook(log.append)
- | {f}.register_hook(lambda g: g * (g.grad_fn is None) * 2)
- | {f}.register_hook(lambda g: g * len(outside))
- | {f}.register_hook(lambda g, seen=[]: seen.append(1) or g * len(seen))
- | {f}.register_hook(lambda g: g if g.sum() > 0 else -g)
- | {f}.register_hook(lambda g: g * g.requires_grad)
- | {f}.register_hook(lambda g: g * torch.is_grad_enabled())
- | {f}.register_hook(lambda g: 1 / 0)
- | {f}.register_hook(lambda g: g).remove()
- | handle = {f}.register_hook(lambda g: g * 3); handle.remove()
- | x.register_post_accumulate_grad_hook(lambda t: outside.append(t.grad.sum().item()))
- | x.register_post_accumulate_grad_hook(lambda t: t.grad.mul_(2))
- | torch.autograd.graph.register_multi_grad_hook([x, {f}], lambda gs: outside.append(len(gs)))
- | torch.autograd.graph.register_multi_grad_hook([{f}, {f}], lambda gs: outside.append([g is None for g in gs]))
- | torch.autograd.graph.register_multi_grad_hook([{f}], lambda g: outside.append(1), mode="any")
- | {f}.grad_fn.register_hook(lambda after, before: outside.append(len(after)))
- | {f}.grad_fn.register_prehook(lambda before: outside.append(len(before)))
- | {f}.retain_grad()
- | ({f} * {f}).sum().backward(retain_graph=True)
- | {f}.sum().backward()
f | {new} = {f} * ({f}._backward_hooks is None)
f | {new} = torch.autograd.grad({f}.sum(), x, retain_graph=True, allow_unused=True)[0]
f | {new} = Twice.apply({f})
f | {new} = {f} * 2
""",
    "algebra": """
f | {new} = torch.linalg.inv({f} @ {f}.mT + torch.eye({f}.shape[0]))
f | {new} = torch.linalg.solve({f} @ {f}.mT + torch.eye({f}.shape[0]), {f})
f | {new} = torch.linalg.cholesky({f} @ {f}.mT + torch.eye({f}.shape[0]))
f | {new} = torch.linalg.cholesky_ex({f} @ {f}.mT - {n})[1] + {f}
f | {new} = torch.linalg.inv_ex({f} @ {f}.mT).info + {f}
f | {new} = torch.linalg.det({f} @ {f}.mT) + {f}
f | {new} = torch.linalg.slogdet({f} @ {f}.mT + torch.eye({f}.shape[0])).logabsdet * {f}
f | {new} = torch.linalg.svdvals({f})
f | {new} = torch.linalg.eigvalsh({f} @ {f}.mT)
f | {new} = torch.linalg.qr({f}).R.abs()
f | {new} = torch.linalg.pinv({f} + 1)
f | {new} = torch.linalg.matrix_exp({f} @ {f}.mT * 0.01)
f | {new} = torch.linalg.matrix_power({f} @ {f}.mT, {k})
f | {new} = torch.linalg.matrix_norm({f})
f | {new} = torch.linalg.lstsq({f}.detach() + torch.eye({f}.shape[0], 3), {f}.detach()).solution
f | {new} = torch.linalg.matrix_rank({f}) * {f}
f | {new} = torch.linalg.vander({f})
f | {new} = torch.linalg.cross({f}, {f})
f | {new} = torch.fft.rfft({f}).abs()
f | {new} = torch.view_as_real(torch.fft.fft({f}))
f | {new} = torch.fft.irfft(torch.fft.rfft({f}), n=3)
f | {new} = torch.fft.ifft2({f}).real
f | {new} = torch.fft.fftshift({f}, -1)
f | {new} = torch.stft({f}.flatten(), 4, 2, window=torch.ones(4), return_complex=True).abs()
f | {new} = torch.complex({f}, {f}).conj().imag
f | {new} = ({f} * 1j).conj().imag
f | {new} = torch.complex({f}, {f}).conj().neg().real
f | {new} = torch.polar({f}, {f}).real
f | {new} = (torch.complex({f}, {f}) ** 2).abs()
f | {new} = torch.einsum("i...,i...->...", {f}, {f})
f | {new} = torch.einsum("ii->i", {f} @ {f}.mT)
f | {new} = torch.tensordot({f}, {f}, dims=([0], [0]))
f | {new} = torch.cdist({f}, {f})
f | {new} = torch.corrcoef({f} + torch.rand_like({f}))
f | {new} = torch.kron({f}, {f})
f | {new} = F.conv1d({f}[None], torch.ones(1, {f}.shape[0], 2))
f | {new} = F.grid_sample({f}[None, None], {f}.new_zeros(1, 1, 1, 2), align_corners=False)
- | torch.linalg.inv({f} @ {f}.mT + torch.eye({f}.shape[0]), out={w})
- | torch.view_as_real(torch.complex({w}, {w})).mul_(2)
- | torch.complex({w}, {w}).real.mul_(2)
n | {new} = torch.linalg.vector_norm({f}).item()
n | {new} = torch.complex({f}, {f}).sum().item()
n | {new} = ({f} * 1j).conj().is_conj()
""",
    "autograd": """
f | {new} = torch.autograd.grad({f}.sum(), x, allow_unused=True)[0]
f | {new} = torch.autograd.grad(({f} * {f}).sum(), [x], create_graph=True, allow_unused=True)[0]
f | {new} = torch.autograd.grad({f}.sum(), {f}, retain_graph=True, allow_unused=True)[0]
- | ({f} * {f}).sum().backward(retain_graph=True)
- | {f}.sum().backward()
- | {f}.retain_grad()
- | {f}.register_hook(lambda g: g * 2)
- | {f}.register_hook(lambda g: log.append(g.sum().item()))
- | x.register_hook(lambda g: g + 1)
f | {new} = {f}.detach().requires_grad_()
f | {new} = torch.zeros(3, requires_grad=True)
f | {new} = nn.Parameter({f}.detach().clone())
f | {new} = torch.ones(3, requires_grad=True) * {f}.sum()
f | {new} = Twice.apply({f})
f | {new} = Twice.apply({f}.clone())
f | {new} = Pair.apply({f}, {f})[0]
f | {new} = Inplace.apply({f}.clone())
f | {new} = checkpoint(lambda t: torch.tanh(t) * {f}, {f}, use_reentrant=False)
f | {new} = checkpoint(torch.sin, {f}, use_reentrant=True)
- | x.grad = None
- | x.requires_grad_(not x.requires_grad) if x.is_leaf else None
n | {new} = {f}.requires_grad
n | {new} = {f}.grad_fn is None
n | {new} = type({f}).__name__
n | {new} = isinstance({f}, nn.Parameter)
n | {new} = x.grad is None
n | {new} = torch.is_grad_enabled()
f | {new} = x.grad + 1 if x.grad is not None else {f}
- | torch.set_grad_enabled({n} > 0)
f | {new} = {f}.sum().backward() or {f}
- | {f}.detach().requires_grad_().mul(2).sum().backward()
n | {new} = {f}.is_inference()
f | {new} = {f}.grad_fn.next_functions[0][0].__class__.__name__ and {f}
f | {new} = nn.utils.clip_grad_norm_([x], 1.0) + {f}
""",
    "transforms": """
f | {new} = func.vmap(lambda row: row * {n} + row.sum())({f})
f | {new} = func.vmap(lambda row, other: row * other, in_dims=(0, None))({f}, {f})
f | {new} = func.vmap(lambda row: row - {f})({f})
f | {new} = func.grad(lambda t: (t * t * {f}).sum())({f})
f | {new} = func.grad(lambda t: torch.sin(t).sum() * {n})({f})
f | {new} = func.jvp(torch.sin, ({f},), ({f}.detach(),))[1]
f | {new} = func.vjp(lambda t: t * t, {f})[1](torch.ones_like({f}))[0]
f | {new} = func.jacrev(lambda t: t.sum(-1))({f})
f | {new} = func.jacfwd(lambda t: t * 2)({f})
f | {new} = func.vmap(func.grad(lambda row: (row ** 2).sum()))({f})
f | {new} = func.grad(lambda t: func.grad(lambda u: (u ** 3).sum())(t).sum())({f})
f | {new} = torch.func.vmap(lambda row: torch.cat([row, row]))({f})
f | {new} = torch.func.vmap(lambda row: row.clone().add_(1))({f})
f | {new} = torch.func.vmap(lambda row: row if row.dim() else row * 2)({f})
f | {new} = torch.func.vmap(torch.sin, chunk_size=1)({f})
f | {new} = torch.func.vmap(lambda row: row + torch.rand(1), randomness="different")({f})
f | {new} = torch.func.grad(lambda t: outside.append(1) or t.sum())({f})
f | {new} = torch.func.functionalize(lambda t: t.clone().mul_(2))({f})
f | {new} = torch.func.hessian(lambda t: (t ** 3).sum())({f}.flatten()[:2])
f | {new} = torch.func.functional_call(net, {{"scale": {f}.mean()}}, ({f},))
f | {new} = torch.autograd.functional.jacobian(lambda t: t * 2, {f}.detach())
f | {new} = torch.vmap(lambda row: Twice.apply(row))({f})
f | {new} = torch.utils._pytree.tree_map(lambda t: t * 2, [{f}, {f}])[0]
""",
    "python": """
f | {new} = [{f}, {f} * 2, {f}][{k}]
f | {new} = {{"a": {f}, {k}: {f} + 1}}["a"]
f | {new} = sum([{f}, {f}])
f | {new} = functools.reduce(operator.mul, [{f}, {f}, {n}])
f | {new} = list(map(lambda t: t + {n}, [{f}]))[0]
f | {new} = next(t * {n} for t in ({f}, {f}) if t is not None)
f | {new} = max([{f}, {f}], key=lambda t: t.sum())
f | {new} = (lambda t, scale={n}: t * scale)({f})
f | {new} = helper({f})
f | {new} = helper({f}, n={n})
f | {new} = half({f})
f | {new} = compose(torch.sin, helper)({f})
f | {new} = copy.copy({f})
f | {new} = copy.deepcopy({f}.detach())
f | {new} = getattr({f}, "mul")({n})
f | {new} = operator.add({f}, {n})
f | {new} = torch.Tensor.add({f}, {f})
f | {new} = ({f}, {f})[-1]
f | {new} = dict(zip("ab", ({f}, {f})))["b"]
f | {new} = {f} if {n} else {f}
f | {new} = [t for t in ({f}, {f}) if t.dim()][0]
f | {new} = Point({f}, {f})._replace(y={f}).y
f | {new} = {{**{{"t": {f}}}}}.pop("t")
f | {new} = sorted([{f}.sum(), {f}.mean()])[0]
f | {new} = box_of({f}).value
f | {new} = functools.partial(torch.mul, other={n})({f})
f | {new} = operator.methodcaller("__call__", {f})(torch.tanh)
f | {new} = torch.tanh.__call__({f})
f | {new} = torch.add(*({f}, {f}), **{{"alpha": {n}}})
n | {new} = len.__call__(outside)
- | outside.append.__call__({n})
n | {new} = len([{f}, {f}]) * {k}
n | {new} = {n} in [1, 2.0]
n | {new} = any(t is x for t in ({f}, {f}))
n | {new} = {f} is {f}
n | {new} = divmod({k}, 2)[1]
n | {new} = "a" * {k}
n | {new} = isinstance({f}, torch.Tensor) and {n}
n | {new} = id({f}) == id({f})
n | {new} = isinstance({f}, torch.FloatTensor)
n | {new} = [*range({k})].index(0)
n | {new} = {f}.dtype == {d}
n | {new} = hasattr({f}, "tag")
- | {f}.tag = {n}
- | log.append({n})
- | log.append({f})
- | log.append({f}.shape)
- | outside.append({n})
- | log += [{n}]
- | box.value = {f}
- | box.count += 1
- | box.items.append({n})
- | {o}, {o} = {o}, {o}
- | raise ValueError("user: stop")
- | assert {n} != 3, "user: three"
- | del {o}
f | {new} = [row for row in {f}][0]
f | {new} = torch.stack([*{f}])
f | {new} = tuple({f}.unbind(-1))[-1]
f | {new} = {f}.__class__(3).zero_() + {f}.sum()
- | first, *rest = {f}
f | {new} = F.embedding(torch.tensor([0, 0]), {f})
""",
}

# Blocks: heads of clauses, separated by ` | `. Their bodies are statements.
BLOCKS: dict[str, str] = {
    "branches": """
if {f}.sum() > 0: | else:
if {n} > 0: | else:
if {b}.any(): | else:
if {f}.numel() > 2:
if {f}.requires_grad: | else:
if {f}.dim() == 2: | else:
if {n} != {n}: | else:
if not {n} <= 1:
if {f}.dtype == {d}: | else:
if x is {f}:
if torch.is_grad_enabled(): | else:
if {f}.is_contiguous(): | else:
if isinstance({f}, nn.Parameter): | else:
if x.grad is None: | else:
if {f}.is_inference():
if torch.is_autocast_enabled("cpu"): | else:
if log:
if torch.get_default_dtype() == torch.float64: | else:
if len(outside) > 1: | else:
if {f}._version > 0: | else:
if {f}.storage_offset() == 0: | else:
if torch.is_inference_mode_enabled(): | else:
if torch.are_deterministic_algorithms_enabled(): | else:
""",
    "loops": """
for _ in range({k}):
for number in range(2):
for value in {f}.flatten().tolist()[:2]:
for row in {f}:
for row in {f}.unbind(0)[:2]:
for number, row in enumerate([{f}, {f}]):
for one, other in zip([{f}, {f}], {f}):
while {f}.sum() > 50:
for each in outside:
for name, each in table.items():
for each in list(log):
for each in (value * 2 for value in [1, 2]):
for turn in itertools.count(): | else:
""",
    "exceptions": """
try: | except (RuntimeError, IndexError, ValueError, TypeError):
try: | except RuntimeError: | finally:
try: | finally:
try: | except Exception: | else:
with contextlib.suppress(Exception):
""",
    "modes": """
with torch.no_grad():
with torch.enable_grad():
with torch.inference_mode():
with torch.inference_mode(False):
with torch.set_grad_enabled({n} > 0):
with torch.autocast("cpu", dtype=torch.bfloat16):
with torch.autocast("cpu", enabled=False):
with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
with torch.autograd.graph.saved_tensors_hooks(lambda t: log.append("pack") or t, lambda t: t):
with torch.autograd.graph.save_on_cpu():
with torch.device("cpu"):
with torch.device("meta"):
with Scaled({n}) as scaled:
with torch.random.fork_rng():
with torch.autograd.set_multithreading_enabled(False):
with torch.autograd.detect_anomaly(check_nan=False):
with torch.nn.utils.parametrize.cached():
with warnings.catch_warnings():
with contextlib.nullcontext({f}) as given:
with contextlib.ExitStack() as stack:
with torch.utils.data._utils.worker.threading.Lock():
with torch.autograd.forward_ad.dual_level():
with torch._C.DisableTorchFunctionSubclass():
with Doubling():
with Shifting():
with Shifting(), Doubling():
with Dispatched():
with Dispatched(), torch.no_grad():
with Doubling(), Dispatched():
with Renaming() as renaming:
with torch.overrides.BaseTorchFunctionMode():
with torch._C.DisableTorchFunction():
with torch.utils.flop_counter.FlopCounterMode(display=False):
with torch.autograd.graph.allow_mutation_on_saved_tensors():
with torch.autograd.graph.disable_saved_tensors_hooks("user: no hooks"):
with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
with torch.autograd.profiler.record_function("x"):
""",
    "functions": """
def inner{k}(t, scale={n}):
def inner{k}(t, *rest, **options):
def inner{k}(t, cache=[]):
def inner{k}(t=x):
def generate{k}():
@torch.no_grad()\\ndef inner{k}(t):
@functools.wraps(helper)\\ndef inner{k}(t):
""",
}

# Statements that may raise, for the bodies of `try`.
RISKY = """
- | {w}.add_({f}.repeat(5, 7))
- | {i} *= 1.5
- | {f}.flatten()[99]
- | torch.linalg.cholesky(-torch.eye(2) * {f}.sum())
- | torch.linalg.inv(torch.zeros(2, 2))
- | x.add_(1)
- | [][{k}]
- | {{}}["absent"]
- | 1 / ({n} - {n})
- | {f}.view(7, 11)
- | raise RuntimeError("user: refused")
- | raise KeyError({k})
- | raise StopIteration
- | {f}.absent
- | {i}.copy_({f}).div_(2)
- | torch.cat([{f}, {i}.flatten()[:0]])
- | {f} @ torch.ones(97, 3)
- | torch.nonzero({f}).select(0, 40)
- | x.expand(3, *x.shape).add_(1)
- | torch.add({f}, 1, out=x.expand(2, *x.shape))
- | torch.randint(5, 1, (2,))
- | {f}.sum().backward()
- | F.embedding(torch.tensor([9]), torch.ones(2, 2))
- | torch.multinomial(torch.tensor([-1.0, 2.0]), 1)
- | assert torch.isfinite({f}).all(), "user: not finite"
- | {f}.item()
- | int("a")
- | torch.tensor([1, 2], dtype=torch.uint8).mul_(1.5)
- | F.nll_loss({f}.reshape(1, -1), torch.tensor([77]))
- | {f}.index_select(0, torch.tensor([50]))
- | {f}.gather(0, torch.full_like({f}, 60, dtype=torch.long))
"""
